package fencing

import (
	"maps"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// configured is what a topic has set of its own.
type configured struct {
	config map[string]string
	named  store.Rev // when the newest command that named it was made
}

// Settings are those of the whole cluster, nil if the broker was told of none. The
// map must not be changed.
func (g *Gate) Settings() map[string]string { return g.settings }

// TopicConfig is what a topic has set of its own, nil for nothing. The map must
// not be changed.
func (g *Gate) TopicConfig(id cluster.TopicID) map[string]string {
	if c := g.configs[id]; c != nil {
		return c.config
	}
	return nil
}

// configure takes in what topics have set of their own, and returns what that
// changes. A command that was made before the newest that named the topic changes
// nothing.
func (g *Gate) configure(topics []*pb.TopicConfig, made store.Rev) []TopicConfig {
	var out []TopicConfig
	for _, t := range topics {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil || g.removed[id] && !g.open.IsOpen() {
			continue
		}
		c := g.configs[id]
		if c == nil {
			c = &configured{}
			g.configs[id] = c
		}
		if made < c.named && !g.open.IsOpen() {
			continue
		}
		c.named = made
		if maps.Equal(c.config, t.GetConfig()) {
			continue
		}
		c.config = t.GetConfig()
		out = append(out, TopicConfig{ID: id, Name: t.GetTopic(), Config: c.config})
	}
	return out
}

// forgetConfigs forgets what no command has named since a revision, from which on
// the broker was told everything.
func (g *Gate) forgetConfigs(since store.Rev) {
	maps.DeleteFunc(g.configs, func(_ cluster.TopicID, c *configured) bool { return c.named < since })
}
