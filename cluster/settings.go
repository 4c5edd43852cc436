package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Names of settings. Those without a note are Kafka's.
const (
	UncleanElection      = "unclean.leader.election.enable"
	MinInSyncReplicas    = "min.insync.replicas"
	AutoRebalance        = "auto.leader.rebalance.enable"
	ImbalanceInterval    = "leader.imbalance.check.interval.seconds"
	ImbalancePercentage  = "leader.imbalance.per.broker.percentage"
	ImbalanceFirst       = "leader.imbalance.first.check.seconds" // Kafka: 5, not a setting
	DeleteTopics         = "delete.topic.enable"
	MaxMoves             = "max.moves"         // our own
	DeleteProtection     = "delete.protection" // our own, of topics only
	defaultFirstCheck    = 5
	defaultCheckInterval = 300
)

// Setting describes a setting that the controller knows.
type Setting struct {
	Name    string
	Default string
	Doc     string
	// Cluster and Topic say where it may be set. A topic's value wins.
	Cluster, Topic bool

	check func(string) error
}

// KnownSettings are the settings that the controller knows, in order of name.
var KnownSettings = []Setting{
	{AutoRebalance, "true", "leaders go back to the first replica by themselves", true, false, isBool},
	{DeleteProtection, "false", "the topic cannot be deleted", false, true, isBool},
	{DeleteTopics, "true", "topics may be deleted", true, false, isBool},
	{ImbalanceInterval, strconv.Itoa(defaultCheckInterval), "seconds between two checks of whether leaders are out of balance", true, false, isNumber(1, 1<<30)},
	{ImbalanceFirst, strconv.Itoa(defaultFirstCheck), "seconds after which a new controller checks first", true, false, isNumber(0, 1<<30)},
	{ImbalancePercentage, "10", "leaders are moved if more than so many percent of those that a broker should lead are led elsewhere", true, false, isNumber(0, 100)},
	{MaxMoves, "1000", "partitions that may be adding replicas at once, others are queued; 0: as many as are asked for", true, false, isNumber(0, 1<<30)},
	{MinInSyncReplicas, "1", "replicas that must be in sync for a write; what that means is the brokers' business", true, true, isNumber(1, 1<<15)},
	{UncleanElection, "false", "a replica outside the ISR may lead if none of the ISR can: what was committed may be lost", true, true, isBool},
}

// KnownSetting is the setting of that name, if the controller knows it.
func KnownSetting(name string) (Setting, bool) {
	i, ok := slices.BinarySearchFunc(KnownSettings, name, func(s Setting, name string) int { return strings.Compare(s.Name, name) })
	if !ok {
		return Setting{}, false
	}
	return KnownSettings[i], true
}

// Check says why a value does not do.
func (s Setting) Check(value string) error {
	if err := s.check(value); err != nil {
		return fmt.Errorf("setting %s: %w", s.Name, err)
	}
	return nil
}

func isBool(value string) error {
	if value != "true" && value != "false" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

func isNumber(least, most int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < least || n > most || strconv.Itoa(n) != value {
			return fmt.Errorf("%q is not a number from %d to %d", value, least, most)
		}
		return nil
	}
}

// Settings is what holds for the whole cluster.
type Settings struct {
	ModRev store.Rev // 0: nobody has set anything
	Record *pb.SettingsRecord

	// Unreadable: everything has its default, and automation stands still.
	Unreadable bool
}

func defaultSettings() *Settings { return &Settings{Record: &pb.SettingsRecord{}} }

// Value is the value of a setting: as it was set, or its default.
func (s *Settings) Value(name string) string {
	if v, ok := s.Record.GetConfig()[name]; ok {
		return v
	}
	known, _ := KnownSetting(name)
	return known.Default
}

// On is the value of a setting that is true or false.
func (s *Settings) On(name string) bool { return s.Value(name) == "true" }

// Number is the value of a setting that is a number.
func (s *Settings) Number(name string) int {
	n, _ := strconv.Atoi(s.Value(name)) // it was checked when it was read
	return n
}

// Seconds is the value of a setting that is a time in seconds.
func (s *Settings) Seconds(name string) time.Duration {
	return time.Duration(s.Number(name)) * time.Second
}

// Frozen reports whether automation stands still: only failures and what an
// operator asks for change anything.
func (s *Settings) Frozen() bool { return s.Unreadable || s.Record.GetFreeze() != nil }

func decodeSettings(c store.Change) (*Settings, error) {
	r := &pb.SettingsRecord{}
	if err := readRecord(c, r); err != nil {
		return nil, fmt.Errorf("decode settings: %w", err)
	}
	for _, s := range KnownSettings {
		if v, ok := r.GetConfig()[s.Name]; ok && s.Cluster {
			if err := s.Check(v); err != nil {
				return nil, fmt.Errorf("decode settings: %w", err)
			}
		}
	}
	return &Settings{ModRev: c.KV.ModRev, Record: r}, nil
}

func (im *Image) applySettings(c store.Change, events []Event) ([]Event, error) {
	old, now := im.Settings, defaultSettings()
	var err error
	if !c.Deleted {
		if now, err = decodeSettings(c); err != nil {
			now = defaultSettings()
			now.ModRev, now.Unreadable = c.KV.ModRev, true
		}
	}
	im.Settings = now
	return append(events, SettingsChanged{old, now}), err
}

// setting is the value of a setting that holds for a topic: its own, if it is
// one that does, or that of the cluster.
func (im *Image) setting(t *Topic, name string) string {
	if v, ok := t.Record.GetConfig()[name]; ok {
		if s, known := KnownSetting(name); known && s.check(v) == nil {
			return v
		}
	}
	return im.Settings.Value(name)
}

// UncleanAllowed reports whether a replica outside the ISR may lead a partition
// of the topic if none of the ISR can. The topic's own value wins.
func (im *Image) UncleanAllowed(t *Topic) bool { return im.setting(t, UncleanElection) == "true" }

// DeleteProtected reports whether the topic says that it must not be deleted.
func (t *Topic) DeleteProtected() bool { return t.Record.GetConfig()[DeleteProtection] == "true" }
