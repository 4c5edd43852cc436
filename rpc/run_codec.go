package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// sendCodec encodes a Send with Metadata, and anything else as ever. The receiver sees an
// ordinary message.
type sendCodec struct{ encoding.CodecV2 }

func newSendCodec() sendCodec { return sendCodec{encoding.GetCodecV2(proto.Name)} }

// Marshal leaves Metadata where it is: all streams send the same bytes.
func (c sendCodec) Marshal(v any) (mem.BufferSlice, error) {
	s, ok := v.(Send)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	head, err := s.head()
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(s.Metadata)}, nil
}
