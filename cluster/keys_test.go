package cluster

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/store"
)

var testKeys = KeysOf("test")

// TestKeys holds each key against its literal form: other programs read them.
func TestKeys(t *testing.T) {
	k := KeysOf("prod-1")
	topic := TopicID{0: 0xab, 15: 1}
	for _, tt := range []struct {
		got, want string
		parsed    parsedKey
	}{
		{k.Cluster(), "cluster", parsedKey{kind: keyCluster}},
		{k.Controller(), "controller", parsedKey{kind: keyController}},
		{k.ControllerEpoch(), "controller_epoch", parsedKey{kind: keyEpoch}},
		{k.Recovery(), "recovery", parsedKey{kind: keyRecovery}},
		{k.Candidate(0x1a2b), "candidates/1a2b", parsedKey{kind: keyCandidate, lease: 0x1a2b}},
		{k.Candidate(-2), "candidates/fffffffffffffffe", parsedKey{kind: keyCandidate, lease: -2}},
		{k.Term(17), "terms/00000000000000000017", parsedKey{kind: keyTerm, epoch: 17}},
		{k.Broker(0), "brokers/0", parsedKey{kind: keyBroker}},
		{k.Broker(2147483647), "brokers/2147483647", parsedKey{kind: keyBroker, id: 2147483647}},
		{k.Node(4), "nodes/4", parsedKey{kind: keyNode, id: 4}},
		{k.Topic("a.b_C-9"), "topics/a.b_C-9", parsedKey{kind: keyTopic, name: "a.b_C-9"}},
		{
			k.Block(BlockID{topic, 3}), "partitions/ab000000000000000000000000000001/3",
			parsedKey{kind: keyBlock, block: BlockID{topic, 3}},
		},
	} {
		if want := "/controllerd/prod-1/" + tt.want; tt.got != want {
			t.Errorf("key %q, want %q", tt.got, want)
		}
		if p, err := k.parse(tt.got); err != nil || p != tt.parsed {
			t.Errorf("parse %q: %+v, %v; want %+v", tt.got, p, err, tt.parsed)
		}
	}
}

// TestParseOneForm: a key that is written otherwise than the layout does is
// unknown, or two keys could mean one thing.
func TestParseOneForm(t *testing.T) {
	const id = "ab000000000000000000000000000001"
	for _, name := range []string{
		"", "/", "Cluster", "cluster/", "clusters", "controller/x", "unheard-of", "unheard-of/1",
		"candidates/", "candidates/1A", "candidates/01a", "candidates/-1", "candidates/1ffffffffffffffff", "candidates/1g",
		"terms/", "terms/17", "terms/00000000000000000000", "terms/-0000000000000000017", "terms/+0000000000000000017",
		"terms/99999999999999999999", "terms/000000000000000000017",
		"brokers/", "brokers/-1", "brokers/+1", "brokers/01", "brokers/1 ", "brokers/2147483648", "brokers/1/2", "nodes/x", "nodes/-1",
		"topics/", "topics/.", "topics/..", "topics/a/b", "topics/a b", "topics/é", "topics/" + strings.Repeat("x", 250),
		"partitions/", "partitions/" + id, "partitions/" + id + "/", "partitions/" + id + "/-1", "partitions/" + id + "/01",
		"partitions/" + id + "/2147483648", "partitions/" + id + "/1000000", "partitions/" + id + "/1/2", "partitions/" + strings.ToUpper(id) + "/1",
		"partitions/" + id[2:] + "/1", "partitions/" + id + "00/1",
	} {
		if p, err := testKeys.parse(testKeys.Prefix() + name); err == nil {
			t.Errorf("parse %q: %+v", name, p)
		}
	}
	for _, key := range []string{"", "cluster", "/controllerd/test", "/controllerd/tes/cluster", "/controllerd/test2/cluster", "x/controllerd/test/cluster"} {
		if p, err := testKeys.parse(key); err == nil {
			t.Errorf("parse %q: %+v", key, p)
		}
	}
}

// TestTermsSort: the keys of terms are in order of epoch.
func TestTermsSort(t *testing.T) {
	for _, e := range []Epoch{1, 9, 99, 1 << 40, 1<<63 - 2} {
		if testKeys.Term(e) >= testKeys.Term(e+1) {
			t.Errorf("%q does not come before %q", testKeys.Term(e), testKeys.Term(e+1))
		}
	}
}

func TestValidateName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "0": true, "prod-1": true, "a-": true, strings.Repeat("x", 63): true,
		"": false, "-a": false, "A": false, "a/b": false, "a_b": false, "a b": false, "a\n": false, strings.Repeat("x", 64): false,
	} {
		if err := ValidateName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestValidateTopicName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, "-": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, "a/b": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("x", 250): false,
	} {
		if err := ValidateTopicName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTopicID(t *testing.T) {
	id := TopicID{0: 0xfb, 1: 0xff, 15: 1}
	if got := id.String(); got != "-_8AAAAAAAAAAAAAAAAAAQ" {
		t.Errorf("as Kafka writes it: %q", got)
	}
	if got, err := TopicIDFrom(id[:]); err != nil || got != id {
		t.Errorf("from its bytes: %v, %v", got, err)
	}
	for _, n := range []int{0, 15, 17} {
		if id, err := TopicIDFrom(make([]byte, n)); err == nil {
			t.Errorf("from %d bytes: %v", n, id)
		}
	}
	low, high := PartitionID{TopicID{15: 1}, 7}, PartitionID{TopicID{15: 2}, 3}
	if low.Compare(high) >= 0 || high.Compare(low) <= 0 || low.Compare(low) != 0 || low.Compare(PartitionID{low.Topic, 8}) >= 0 {
		t.Error("partitions are not in order of topic id, then index")
	}
}

// FuzzParseKey: whatever can be parsed is written back the same.
func FuzzParseKey(f *testing.F) {
	for _, key := range []string{
		testKeys.Cluster(), testKeys.Candidate(7), testKeys.Term(1), testKeys.Broker(1), testKeys.Node(1), testKeys.Topic("t"),
		testKeys.Block(BlockID{TopicID{1}, 2}),
	} {
		f.Add(strings.TrimPrefix(key, testKeys.Prefix()))
	}
	f.Fuzz(func(t *testing.T, name string) {
		key := testKeys.Prefix() + name
		p, err := testKeys.parse(key)
		if err == nil && testKeys.format(p) != key {
			t.Errorf("%q is parsed as %+v, which is %q", key, p, testKeys.format(p))
		}
		im := NewImage(testKeys)
		im.Apply(store.Batch{Rev: 1, Changes: []store.Change{{KV: store.KV{Key: key, CreateRev: 1, ModRev: 1}}}})
		if len(im.Faults) != 1 && p.kind != keyController {
			t.Errorf("%q without a value is no fault", key)
		}
	})
}
