package records

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Unknown are the fields of one message that this program does not know, as
// they are encoded.
type Unknown struct {
	Path   string // of the message within the record; empty: the record itself
	Fields []byte
}

func unknownIn(record proto.Message) []Unknown {
	var out []Unknown
	visit("", record.ProtoReflect(), func(path string, m protoreflect.Message) {
		if u := m.GetUnknown(); len(u) > 0 {
			out = append(out, Unknown{path, u})
		}
	})
	return out
}

// visit visits a message and the messages in its lists, in order. Records have
// no other messages in them.
func visit(path string, m protoreflect.Message, fn func(string, protoreflect.Message)) {
	fn(path, m)
	lists(m, func(f protoreflect.FieldDescriptor, l protoreflect.List) {
		for i := range l.Len() {
			visit(fmt.Sprintf("%s[%d]", f.Name(), i), l.Get(i).Message(), fn)
		}
	})
}

// lists visits the lists of messages in a message, in order of field.
func lists(m protoreflect.Message, fn func(protoreflect.FieldDescriptor, protoreflect.List)) {
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); f.IsList() && f.Message() != nil {
			fn(f, m.Get(f).List())
		}
	}
}

// KeepUnknown gives a record the fields that the old one has and this program
// does not know. In lists, messages with the same first field are the same: a
// partition by its index, a holder by its broker id, an endpoint by its
// listener.
func KeepUnknown(old, record proto.Message) {
	if old != nil {
		keepUnknown(old.ProtoReflect(), record.ProtoReflect())
	}
}

func keepUnknown(old, m protoreflect.Message) {
	m.SetUnknown(old.GetUnknown())
	lists(m, func(f protoreflect.FieldDescriptor, l protoreflect.List) {
		name := f.Message().Fields().ByNumber(1)
		had := map[any]protoreflect.Message{}
		was := old.Get(f).List()
		for i := range was.Len() {
			had[was.Get(i).Message().Get(name).Interface()] = was.Get(i).Message()
		}
		for i := range l.Len() {
			element := l.Get(i).Message()
			if same := had[element.Get(name).Interface()]; same != nil {
				keepUnknown(same, element)
			}
		}
	})
}
