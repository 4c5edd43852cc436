package statemachine

import (
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// AlterSettings is the record of settings after a change: all of it or, with a
// name or a value that does not do (INVALID_CONFIG), nothing. Names that the
// controller does not know are kept, for brokers.
//
// While the record cannot be read nothing is changed (KAFKA_STORAGE_ERROR):
// what it holds besides would be lost.
func AlterSettings(im *cluster.Image, t Term, r *pb.AlterSettingsRequest) (*pb.SettingsRecord, *Rejection) {
	if im.Settings.Unreadable {
		return nil, reject(cluster.KafkaStorageError, "key %s cannot be read: repair or delete it", im.Keys.Settings())
	}
	next := proto.Clone(im.Settings.Record).(*pb.SettingsRecord)
	var rej *Rejection
	if next.Config, rej = alterConfig(next.GetConfig(), r.GetSet(), r.GetUnset(), func(s cluster.Setting) bool { return s.Cluster }); rej != nil {
		return nil, rej
	}
	switch {
	case r.Freeze == nil:
	case !r.GetFreeze():
		next.Freeze = nil
	case next.Freeze == nil:
		next.Freeze = &pb.Freeze{Reason: r.GetReason(), SinceMs: t.NowMs}
	case r.GetReason() != "":
		next.Freeze.Reason = r.GetReason()
	}
	if proto.Equal(next, im.Settings.Record) {
		return im.Settings.Record, nil
	}
	next.Reason, next.ChangedMs, next.ControllerEpoch = r.GetReason(), t.NowMs, int64(t.Epoch)
	return next, nil
}

// AlterTopic is the record of a topic after a change of its overrides: all of it
// or nothing, as in AlterSettings. A topic that is missing or is being deleted
// has none: UNKNOWN_TOPIC_OR_PARTITION.
func AlterTopic(t *cluster.Topic, r *pb.AlterTopicsRequest) (*pb.TopicRecord, *Rejection) {
	switch {
	case t == nil:
		return nil, reject(cluster.UnknownTopicOrPartition, "the topic does not exist")
	case t.Deleting():
		return nil, reject(cluster.UnknownTopicOrPartition, "the topic is being deleted")
	}
	config, rej := alterConfig(t.Record.GetConfig(), r.GetSet(), r.GetUnset(), ofATopic)
	if rej != nil {
		return nil, rej
	}
	if maps.Equal(config, t.Record.GetConfig()) {
		return t.Record, nil
	}
	next := proto.Clone(t.Record).(*pb.TopicRecord)
	next.Config, next.ConfigReason = config, r.GetReason()
	return next, nil
}

func ofATopic(s cluster.Setting) bool { return s.Topic }

// alterConfig is a configuration after a change. What was there before is not
// judged, but for its size.
func alterConfig(have, set map[string]string, unset []string, here func(cluster.Setting) bool) (map[string]string, *Rejection) {
	if rej := validateConfig(set, here); rej != nil {
		return nil, rej
	}
	next := maps.Clone(have)
	if next == nil {
		next = map[string]string{}
	}
	for _, name := range unset {
		if _, both := set[name]; both {
			return nil, reject(cluster.InvalidConfig, "%q is to be set and unset", name)
		}
		delete(next, name)
	}
	maps.Copy(next, set)
	size := 0
	for name, value := range next {
		size += len(name) + len(value)
	}
	if size > MaxConfigBytes {
		return nil, reject(cluster.InvalidConfig, "settings of %d bytes, want at most %d", size, MaxConfigBytes)
	}
	return next, nil
}

// validateConfig looks at the form of names and values, and at the values of
// settings that the controller knows. What others mean is the brokers'
// business.
func validateConfig(config map[string]string, here func(cluster.Setting) bool) *Rejection {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(config)) {
		value := config[name]
		size += len(name) + len(value)
		known, ok := cluster.KnownSetting(name)
		switch {
		case name == "":
			return reject(cluster.InvalidConfig, "a setting has no name")
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return reject(cluster.InvalidConfig, "setting %q is not UTF-8", name)
		case ok && !here(known) && known.Topic:
			return reject(cluster.InvalidConfig, "setting %s is one of topics, not of the cluster", name)
		case ok && !here(known):
			return reject(cluster.InvalidConfig, "setting %s is one of the cluster, not of topics", name)
		case ok:
			if err := known.Check(value); err != nil {
				return reject(cluster.InvalidConfig, "%v", err)
			}
		}
	}
	if size > MaxConfigBytes {
		return reject(cluster.InvalidConfig, "settings of %d bytes, want at most %d", size, MaxConfigBytes)
	}
	return nil
}
