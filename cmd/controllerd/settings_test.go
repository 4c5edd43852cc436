package main

import (
	"slices"
	"strings"
	"testing"
)

// setting is one of the settings that a daemon shows.
func (w *world) setting(t *testing.T, name string) settingView {
	t.Helper()
	v := decode[settingsView](t, w.cli("settings", "list", "-o", "json"))
	i := slices.IndexFunc(v.Settings, func(s settingView) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("%s is not listed: %+v", name, v.Settings)
	}
	return v.Settings[i]
}

func TestSettings(t *testing.T) {
	w := newWorld(t, 2, 1)
	const unclean = "unclean.leader.election.enable"
	if s := w.setting(t, unclean); s.Value != "false" || s.Set || s.Default != "false" || s.Scope != "cluster, topic" || s.Doc == "" {
		t.Errorf("%+v", s)
	}
	wantLines(t, w.cli("settings", "set", unclean+"=true", "--dry-run").want(t, exitOK).lines(), "would be changed")
	if s := w.setting(t, unclean); s.Set {
		t.Errorf("a dry run has set %+v", s)
	}
	wantLines(t, w.cli("settings", "set", unclean+"=true", "my.own=1", "--reason", "we can lose it").want(t, exitOK).lines(), "changed")
	if s := w.setting(t, unclean); s.Value != "true" || !s.Set {
		t.Errorf("%+v", s)
	}
	if s := w.setting(t, "my.own"); s.Value != "1" || s.Scope != "brokers" {
		t.Errorf("%+v", s)
	}
	if r := w.cli("settings", "list").want(t, exitOK); !strings.Contains(r.stdout, "we can lose it") {
		t.Error(r.stdout)
	}
	wantLines(t, w.cli("settings", "set", "my.own=1").want(t, exitOK).lines(), "nothing to change: it is so already")
	w.cli("settings", "unset", "my.own", unclean).want(t, exitOK)
	if v := decode[settingsView](t, w.cli("settings", "list", "-o", "json")); slices.ContainsFunc(v.Settings, func(s settingView) bool { return s.Set }) {
		t.Errorf("%+v", v)
	}
	for bad, code := range map[string]int{
		"set": exitUsage, "set x": exitUsage, "set x=1 x=2": exitUsage, "unset": exitUsage, "list x": exitUsage,
		"set max.moves=x": exitFailed, "set =x": exitFailed, "set delete.protection=true": exitFailed,
	} {
		w.cli(append([]string{"settings"}, strings.Fields(bad)...)...).want(t, code)
	}
}

func TestFreeze(t *testing.T) {
	w := newWorld(t, 1, 1)
	status := func() *freezeView {
		return decode[statusView](t, w.cli("controller", "status", "-o", "json")).Freeze
	}
	if f := status(); f != nil {
		t.Errorf("frozen: %+v", f)
	}
	w.cli("freeze", "--dry-run").want(t, exitOK)
	w.cli("freeze", "--reason", "we look at the disks").want(t, exitOK)
	if f := status(); f == nil || f.Reason != "we look at the disks" || f.Since == "" {
		t.Errorf("%+v", f)
	}
	for _, where := range []string{"controller status", "settings list"} {
		if r := w.cli(strings.Fields(where)...).want(t, exitOK); !strings.Contains(r.stdout, "automation stands still") || !strings.Contains(r.stdout, "we look at the disks") {
			t.Errorf("%s: %s", where, r.stdout)
		}
	}
	wantLines(t, w.cli("freeze").want(t, exitOK).lines(), "nothing to change: it is so already")
	w.cli("unfreeze").want(t, exitOK)
	if f := status(); f != nil {
		t.Errorf("still frozen: %+v", f)
	}
	w.cli("freeze", "x").want(t, exitUsage)
}

func TestTopicAlter(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.topic("orders", 1, 1)
	w.topic("payments", 1, 1)
	wantLines(t, w.cli("topic", "alter", "orders", "payments", "--config", "delete.protection=true", "--config", "a=b", "--reason", "why not").want(t, exitOK).lines(),
		"TOPIC CONFIG", "orders a=b delete.protection=true", "payments a=b delete.protection=true")
	if r := w.cli("topic", "describe", "orders").want(t, exitOK); !strings.Contains(r.stdout, "Settings: a=b delete.protection=true: why not") {
		t.Error(r.stdout)
	}
	if r := w.cli("topic", "delete", "orders", "--yes").want(t, exitFailed); !strings.Contains(r.stderr, "POLICY_VIOLATION") {
		t.Error(r.stderr)
	}
	w.cli("topic", "alter", "orders", "--unset", "delete.protection", "--dry-run").want(t, exitOK)
	w.cli("topic", "delete", "orders", "--yes").want(t, exitFailed)
	w.cli("topic", "alter", "orders", "--unset", "delete.protection").want(t, exitOK)
	w.cli("settings", "set", "delete.topic.enable=false").want(t, exitOK)
	if r := w.cli("topic", "delete", "orders", "--yes").want(t, exitFailed); !strings.Contains(r.stderr, "TOPIC_DELETION_DISABLED") {
		t.Error(r.stderr)
	}
	w.cli("settings", "unset", "delete.topic.enable").want(t, exitOK)
	w.cli("topic", "delete", "orders", "missing", "--yes").want(t, exitFailed)
	w.cli("topic", "delete", "orders", "missing", "--yes", "--if-exists").want(t, exitOK)
	if r := w.cli("topic", "delete", "orders", "--yes", "--if-exists").want(t, exitOK); r.stdout != "" {
		t.Error(r.stdout)
	}
	for bad, code := range map[string]int{
		"orders": exitUsage, "": exitUsage, "payments --config x": exitUsage,
		"none --config a=b": exitFailed, "payments --config max.moves=1": exitFailed, "payments --config min.insync.replicas=0": exitFailed,
	} {
		w.cli(append([]string{"topic", "alter"}, strings.Fields(bad)...)...).want(t, code)
	}
}
