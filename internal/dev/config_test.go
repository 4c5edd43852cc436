package dev

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string // parts of the faults, in order; none: valid
	}{
		"defaults":   {change: func(*Config) {}},
		"etcd alone": {change: func(c *Config) { *c = Config{} }},
		"no brokers": {change: func(c *Config) { c.Brokers, c.Topics = 0, 0 }},
		"kills fit": {change: func(c *Config) {
			c.For, c.KillActiveEvery, c.KillBrokerEvery = 14*time.Second, 5*time.Second, 7*time.Second
		}},
		"kills for ever": {change: func(c *Config) { c.KillActiveEvery = time.Hour }},
		"cluster name":   {change: func(c *Config) { c.Cluster = "A" }, want: []string{`cluster name "A"`}},
		"negative counts": {
			change: func(c *Config) { c.Controllers, c.Brokers, c.Topics = -1, -2, -3 },
			want:   []string{"--controllers is -1", "--brokers is -2", "--topics is -3"},
		},
		"negative partitions": {
			change: func(c *Config) { c.Partitions, c.ReplicationFactor = -1, -1 },
			want:   []string{"--partitions is -1", "--replication-factor is -1"},
		},
		"too few brokers":     {change: func(c *Config) { c.Brokers = 2 }, want: []string{"--replication-factor 3 needs as many brokers, --brokers is 2"}},
		"brokers alone":       {change: func(c *Config) { c.Controllers = 0 }, want: []string{"--brokers 5 without --controllers"}},
		"short lease":         {change: func(c *Config) { c.LeaseTTL = time.Second }, want: []string{"--lease-ttl is 1s, want 2s or more"}},
		"short session":       {change: func(c *Config) { c.SessionTTL = time.Second }, want: []string{"--session-ttl is 1s, want 4s to 1m0s"}},
		"negative time":       {change: func(c *Config) { c.For = -1 }, want: []string{"--for is -1ns"}},
		"negative kills":      {change: func(c *Config) { c.KillActiveEvery, c.KillBrokerEvery = -1, -1 }, want: []string{"--kill-active-every is -1ns", "--kill-broker-every is -1ns"}},
		"too short for kills": {change: func(c *Config) { c.For, c.KillActiveEvery = 9*time.Second, 5*time.Second }, want: []string{"--for 9s leaves no time for --kill-active-every 5s: kills end 5s before"}},
		"too short for brokers": {change: func(c *Config) {
			c.For, c.KillBrokerEvery, c.RestartAfter = 13*time.Second, 7*time.Second, 5*time.Second
		}, want: []string{"--for 13s leaves no time for --kill-broker-every 7s: kills end 7s before"}},
		"negative restart":  {change: func(c *Config) { c.RestartAfter = -time.Second }, want: []string{"--restart-after is -1s, want more than 0"}},
		"no broker to kill": {change: func(c *Config) { c.Brokers, c.Topics, c.KillBrokerEvery = 0, 0, time.Second }, want: []string{"--kill-broker-every without --brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Controllers: 3, Brokers: 5, Topics: 4, Partitions: 12, ReplicationFactor: 3}
			c.change(&cfg)
			var lines []string
			if err := cfg.Validate(); err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(c.want) {
				t.Fatalf("faults %q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestTopicNames(t *testing.T) {
	if got := (Config{Topics: 6}).topicNames(); !slices.Equal(got, []string{"orders", "payments", "shipments", "users", "topic-5", "topic-6"}) {
		t.Error(got)
	}
	if got := (Config{Topics: 1}).topicNames(); !slices.Equal(got, []string{"orders"}) {
		t.Error(got)
	}
}
