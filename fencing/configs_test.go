package fencing

import (
	"maps"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// configured is a command made from a revision that says what topics set.
func configuredBy(rev int64, configs ...*pb.TopicConfig) *pb.Command {
	s := stamp(10, 5)
	s.Revision = rev
	return &pb.Command{Stamp: s, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{TopicConfigs: configs}}}
}

// The newest that was made wins, and says what has changed; a full sync that does
// not name a topic says that nothing is set.
func TestTopicConfigs(t *testing.T) {
	g := registered(t)
	id := cluster.TopicID{7}
	a := func(v string) *pb.TopicConfig {
		return &pb.TopicConfig{TopicId: id[:], Topic: "a", Config: map[string]string{"k": v}}
	}
	if v := g.Admit(configuredBy(20, a("1"))); len(v.Configs) != 1 || v.Configs[0].Name != "a" || v.Configs[0].Config["k"] != "1" {
		t.Errorf("%+v", v)
	}
	if v := g.Admit(configuredBy(21, a("1"))); len(v.Configs) != 0 {
		t.Errorf("again: %+v", v)
	}
	if v := g.Admit(configuredBy(19, a("0"))); len(v.Configs) != 0 || g.TopicConfig(id)["k"] != "1" {
		t.Errorf("older: %+v", v)
	}
	if v := g.Admit(configuredBy(22, &pb.TopicConfig{TopicId: id[:], Topic: "a"})); len(v.Configs) != 1 || len(g.TopicConfig(id)) != 0 {
		t.Errorf("taken back: %+v", v)
	}
	if v := g.Admit(configuredBy(23, &pb.TopicConfig{TopicId: []byte{1}})); len(v.Configs) != 0 {
		t.Errorf("no topic id: %+v", v)
	}
	g.Admit(configuredBy(24, a("2")))
	g.forgetUnnamed(&pb.FullSync{SinceRevision: 24, Everything: true})
	if g.TopicConfig(id)["k"] != "2" {
		t.Error("forgotten though it was named")
	}
	g.forgetUnnamed(&pb.FullSync{SinceRevision: 25, Everything: true})
	if g.TopicConfig(id) != nil {
		t.Error("not forgotten")
	}
	s := configuredBy(26)
	s.GetUpdateMetadata().LiveBrokers, s.GetUpdateMetadata().Settings = &pb.LiveBrokers{}, map[string]string{"x": "y"}
	if v := g.Admit(s); !maps.Equal(v.Settings, map[string]string{"x": "y"}) || g.Settings()["x"] != "y" {
		t.Errorf("settings: %+v", v)
	}
}
