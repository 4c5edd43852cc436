package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func TestKnownSettings(t *testing.T) {
	if !slices.IsSortedFunc(KnownSettings, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in order of name: none is found")
	}
	for _, s := range KnownSettings {
		if got, ok := KnownSetting(s.Name); !ok || got.Name != s.Name {
			t.Errorf("%s is not found", s.Name)
		}
		if err := s.Check(s.Default); err != nil {
			t.Errorf("its default: %v", err)
		}
		if !s.Cluster && !s.Topic || s.Doc == "" {
			t.Errorf("%s: nowhere to be set, or not explained", s.Name)
		}
	}
	if _, ok := KnownSetting("x"); ok {
		t.Error("x is known")
	}
	for name, bad := range map[string][]string{
		UncleanElection:     {"", "yes", "TRUE"},
		ImbalancePercentage: {"", "-1", "101", "1.5", "010", "+1"},
		ImbalanceInterval:   {"0"},
		MaxMoves:            {"-1", "99999999999999999999"},
	} {
		s, _ := KnownSetting(name)
		for _, v := range bad {
			if s.Check(v) == nil {
				t.Errorf("%s accepts %q", name, v)
			}
		}
	}
}

// settingsBatch puts the settings key.
func settingsBatch(k Keys, rev store.Rev, value []byte) store.Batch {
	return store.Batch{Rev: rev, Changes: []store.Change{{KV: store.KV{Key: k.Settings(), ModRev: rev, CreateRev: rev, Value: value}}}}
}

// The settings are as they were set, or have their defaults. While they cannot
// be read they have their defaults, and automation stands still.
func TestSettings(t *testing.T) {
	k := KeysOf("c")
	im := NewImage(k)
	s := im.Settings
	if s.On(UncleanElection) || !s.On(AutoRebalance) || s.Seconds(ImbalanceInterval) != 5*time.Minute || s.Number(ImbalancePercentage) != 10 || s.Frozen() {
		t.Error("other defaults than Kafka's")
	}
	r := &pb.SettingsRecord{Config: map[string]string{UncleanElection: "true", "x": "y", MaxMoves: "5"}}
	ev := im.Apply(settingsBatch(k, 2, Encode(r)))
	if s := im.Settings; !s.On(UncleanElection) || s.Value("x") != "y" || s.Number(MaxMoves) != 5 || s.ModRev != 2 || s.Frozen() {
		t.Errorf("settings %v", s)
	}
	if c, ok := ev[0].(SettingsChanged); len(ev) != 1 || !ok || c.New != im.Settings || c.Old == c.New {
		t.Errorf("events %v", ev)
	}
	r.Freeze = &pb.Freeze{Reason: "because"}
	if im.Apply(settingsBatch(k, 3, Encode(r))); !im.Settings.Frozen() {
		t.Error("not frozen")
	}
	r.Freeze, r.Config[MaxMoves] = nil, "many"
	for rev, value := range map[store.Rev][]byte{4: Encode(r), 5: []byte("garbage"), 6: {}} {
		im := NewImage(k)
		im.Apply(settingsBatch(k, rev, value))
		if s := im.Settings; len(im.Faults) != 1 || !s.Frozen() || s.On(UncleanElection) || s.ModRev != rev || s.Number(MaxMoves) != 1000 {
			t.Errorf("%q: faults %v, settings %v", value, im.Faults, s)
		}
		im.Apply(store.Batch{Rev: 9, Changes: []store.Change{{KV: store.KV{Key: k.Settings(), ModRev: 9}, Deleted: true}}})
		if s := im.Settings; len(im.Faults) != 0 || s.Frozen() || s.ModRev != 0 {
			t.Errorf("deleted: faults %v, settings %v", im.Faults, s)
		}
	}
}

// A topic's own value wins, also "false"; one that means nothing is none.
func TestUncleanAllowed(t *testing.T) {
	im := NewImage(KeysOf("c"))
	for _, row := range []struct {
		cluster, topic string
		want           bool
	}{
		{"", "", false}, {"true", "", true}, {"false", "", false},
		{"", "true", true}, {"false", "true", true}, {"true", "true", true},
		{"true", "false", false}, {"", "false", false}, {"true", "maybe", true},
	} {
		im.Settings = &Settings{Record: &pb.SettingsRecord{Config: map[string]string{}}}
		topic := &Topic{Record: &pb.TopicRecord{Config: map[string]string{}}}
		if row.cluster != "" {
			im.Settings.Record.Config[UncleanElection] = row.cluster
		}
		if row.topic != "" {
			topic.Record.Config[UncleanElection] = row.topic
		}
		if got := im.UncleanAllowed(topic); got != row.want {
			t.Errorf("cluster %q, topic %q: %v", row.cluster, row.topic, got)
		}
	}
}
