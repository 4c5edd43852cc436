package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Numbers of the fields around an UpdateMetadata in a CommandsRequest.
const (
	fieldCommand        = 2
	fieldUpdateMetadata = 4
)

// broadcast is the body of a command that many brokers hear. It is encoded once
// for all of them: only stamp, sequence and progress differ.
type broadcast struct {
	update  *pb.UpdateMetadata
	encoded []byte // nil: for one broker only
}

// share encodes what many brokers are to hear.
func (p *Pusher) share(u *pb.UpdateMetadata) *broadcast {
	encoded, err := proto.Marshal(u)
	if err != nil {
		panic(fmt.Sprintf("encode metadata: %v", err)) // only a string that is not UTF-8, which no record holds
	}
	p.Stats.Encoded++
	return &broadcast{u, encoded}
}

// metadataOf is what the broker wants to hear of the chunk, nil if nothing.
func (p *Pusher) metadataOf(im *cluster.Image, t *target, c *chunk) *broadcast {
	b := im.Brokers[t.id]
	if b == nil || b.Record.GetMetadataScope() == pb.MetadataScope_METADATA_SCOPE_NONE || c.empty() {
		return nil
	}
	if b.Record.GetMetadataScope() == pb.MetadataScope_METADATA_SCOPE_HOSTED {
		topics := grouped(c.hosted(t.id))
		if len(topics)+len(c.removed)+len(c.configs) == 0 {
			return nil
		}
		return &broadcast{update: &pb.UpdateMetadata{Topics: topics, RemovedTopics: c.removed, TopicConfigs: c.configs}}
	}
	if c.all == nil {
		c.all = p.share(&pb.UpdateMetadata{Topics: grouped(c.states), RemovedTopics: c.removed, TopicConfigs: c.configs})
	}
	return c.all
}

// liveMetadata are the live brokers and the settings.
func (p *Pusher) liveMetadata(im *cluster.Image) *broadcast {
	if p.live == nil || p.liveOf != p.brokers {
		p.live, p.liveOf = p.share(&pb.UpdateMetadata{LiveBrokers: liveBrokers(im), Settings: im.Settings.Record.GetConfig()}), p.brokers
	}
	return p.live
}

func (p *Pusher) sendMetadata(im *cluster.Image, t *target, m *broadcast, behind *pb.Progress, out []PushAction) []PushAction {
	c := &pb.Command{Body: &pb.Command_UpdateMetadata{UpdateMetadata: m.update}, Progress: behind}
	return append(out, Send{t.stream, p.command(im, t, c), m.encoded})
}

// head is the encoding of the request up to its Metadata, which follows.
func (s Send) head() ([]byte, error) {
	c := s.Request.GetCommand()
	own, err := proto.Marshal(&pb.Command{Stamp: c.GetStamp(), Sequence: c.GetSequence(), Progress: c.GetProgress()})
	if err != nil {
		return nil, err
	}
	own = protowire.AppendTag(own, fieldUpdateMetadata, protowire.BytesType)
	own = protowire.AppendVarint(own, uint64(len(s.Metadata)))
	out := protowire.AppendTag(make([]byte, 0, len(own)+8), fieldCommand, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(len(own)+len(s.Metadata)))
	return append(out, own...), nil
}
