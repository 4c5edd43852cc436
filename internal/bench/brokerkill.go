package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/demobroker"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	victimID     = 4    // the broker that is a process of its own
	victimLeads  = 1000 // partitions
	brokerKilled = 500 * time.Millisecond
	// brokerProvable is how long after a proof of death there is no other.
	brokerProvable = 10500 * time.Millisecond
)

var brokerKillRow = row{
	name: "brokerkill",
	what: `
A broker that leads 1,000 partitions is killed by SIGKILL, with two daemons and three other brokers, which have the other two
replicas: from sending the signal until the last record is committed, as the watch of a process of its own sees it, and until
the last handler of the others is called. With a session TTL of 5 s and of 60 s. Of the time 200 ms are the window in which
every new connection must be refused. Bare: a client that holds a connection to a process which is killed finds it broken, is
refused once and deletes a key; another one, whose watch shows that, writes the same records as in brokerloss.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		var figures []figure
		for _, ttl := range []time.Duration{shortTTL, longTTL} {
			ours, bare, err := brokerKills(ctx, b, ttl)
			if err != nil {
				return nil, err
			}
			figures = append(figures,
				figure{what: fmt.Sprintf("TTL %v: until the last record is committed", ttl), ours: ours[0], bare: bare},
				figure{what: fmt.Sprintf("TTL %v: until the last handler is called", ttl), ours: ours[1], bare: bare, below: brokerKilled.Seconds()})
		}
		return figures, nil
	},
}

func brokerKills(ctx context.Context, b *bench, ttl time.Duration) (ours [][]float64, bare []float64, err error) {
	w, err := newWorld(ctx, b, 2)
	if err != nil {
		return nil, nil, err
	}
	defer w.close()
	outside, err := startWatcher(ctx, w.addr)
	if err != nil {
		return nil, nil, err
	}
	defer outside.close()
	for id := range victimID - 1 {
		if err := w.startNode(ctx, cluster.BrokerID(id+1), never); err != nil {
			return nil, nil, err
		}
	}
	n := 0
	ours, err = measure(ctx, fmt.Sprintf("kill of a broker, session TTL %v", ttl), func(ctx context.Context) ([]time.Duration, error) {
		n++
		victim, err := w.startVictim(ctx, fmt.Sprint("led-", n), ttl)
		if err != nil {
			return nil, err
		}
		return w.killBroker(ctx, outside, victim)
	})
	if err != nil {
		return nil, nil, err
	}
	if err := w.checkOrder(); err != nil {
		return nil, nil, err
	}
	victim, err := w.startVictim(ctx, "bare", ttl)
	if err != nil {
		return nil, nil, err
	}
	defer victim.kill()
	bare, err = w.bareBrokerKill(ctx, outside)
	return ours, bare, err
}

// beBroker is the whole of a process that is a broker until it is killed.
func beBroker(ctx context.Context, id int, args []string) error {
	if len(args) < 2 {
		return errors.New("want a session TTL and daemons")
	}
	ttl, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	b, err := demobroker.Start(ctx, demobroker.Config{Broker: broker.Config{
		ID: cluster.BrokerID(id), NodeUUID: fmt.Sprint("bench-", id), Daemons: args[1:], SessionTTL: ttl,
		Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		return err
	}
	return b.Wait()
}

// startVictim starts the broker that is to be killed, makes it the leader of all
// partitions of a new topic, and waits until its death can be proved.
func (w *world) startVictim(ctx context.Context, topic string, ttl time.Duration) (_ *process, err error) {
	args := append([]string{"-broker", fmt.Sprint(victimID), ttl.String()}, w.endpoints()...)
	p, err := w.b.startSelf("broker", args...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.kill()
		}
	}()
	err = w.await(ctx, "the broker", func(im *cluster.Image) bool { return len(im.Brokers) == victimID })
	if err != nil {
		return nil, err
	}
	if err = pause(ctx, settling); err != nil { // the active has to see it too
		return nil, err
	}
	id, _, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	others := [][2]int32{{1, 2}, {2, 3}, {3, 1}}
	t := &pb.NewTopic{Name: topic}
	for i := range w.b.scaled(victimLeads, 1) {
		o := others[i%len(others)]
		t.Assignments = append(t.Assignments, &pb.ReplicaAssignment{Replicas: []int32{victimID, o[0], o[1]}})
	}
	if err = create(ctx, pb.NewAdminServiceClient(w.conns[id]), t); err != nil {
		return nil, err
	}
	err = w.await(ctx, "the topic", func(im *cluster.Image) bool { return im.Topics[topic] != nil })
	if err != nil {
		return nil, err
	}
	if err = w.settle(ctx); err != nil {
		return nil, err
	}
	return p, pause(ctx, brokerProvable)
}

// killBroker kills the broker that leads, and waits until others do.
func (w *world) killBroker(ctx context.Context, outside *watcher, victim *process) ([]time.Duration, error) {
	var blocks, handlers, leads int
	w.look(func(im *cluster.Image) {
		for _, t := range im.Topics {
			im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
				if p.Leader == victimID {
					leads++
				}
			})
		}
		blocks, handlers = blocksLedBy(im, victimID), 2*leads
	})
	if want := w.b.scaled(victimLeads, 1); leads != want {
		return nil, fmt.Errorf("the broker leads %d partitions, want %d", leads, want)
	}
	outside.mark()
	w.countCalls()
	w.rest()
	defer w.resume()
	began := time.Now()
	victim.kill()
	committed, err := outside.blocks(ctx, blocks)
	if err != nil {
		return nil, err
	}
	called, err := w.awaitCalls(ctx, handlers)
	if err != nil {
		return nil, err
	}
	w.resume()
	err = w.checkLoss(ctx, victimID, committed.rev)
	return []time.Duration{committed.at.Sub(began), called.Sub(began)}, err
}

// blocksLedBy is the number of blocks in which a broker leads a partition.
func blocksLedBy(im *cluster.Image, id cluster.BrokerID) int {
	blocks := map[cluster.BlockID]bool{}
	im.Hosted(id, func(t *cluster.Topic, part cluster.PartitionID, p *cluster.Partition) {
		if p.Leader == id {
			blocks[cluster.BlockOf(part, t.BlockSize())] = true
		}
	})
	return len(blocks)
}

// bareBrokerKill does in etcd what the kill of a broker does.
func (w *world) bareBrokerKill(ctx context.Context, outside *watcher) ([]float64, error) {
	blocks, err := w.copyBlocks(ctx, wholeBlocks)
	if err != nil {
		return nil, err
	}
	end, err := w.bareStandbys(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	witness, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer witness.close()
	writer, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer writer.close()
	return measureOne(ctx, "bare kill of a broker", func(ctx context.Context) (time.Duration, error) {
		for _, b := range blocks {
			b.next = proto.Clone(b.record)
		}
		h, err := w.b.startHeld(ctx)
		if err != nil {
			return 0, err
		}
		defer h.close()
		key, err := w.client.Put(ctx, bareSeat, "x")
		if err != nil {
			return 0, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := writer.client.Watch(ctx, bareSeat, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
		<-watch
		guard, err := w.client.Put(ctx, bareEpoch, "x")
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, settling); err != nil {
			return 0, err
		}
		outside.mark()
		began := time.Now()
		go h.process.kill()
		if err := h.awaitDeath(); err != nil {
			return 0, err
		}
		if err := witness.free(ctx, key.Header.Revision); err != nil {
			return 0, err
		}
		<-watch
		n, err := writer.write(ctx, bareWay{perKey: wholeBlocks, perTxn: blocksPerTxn, inFlight: inFlight}, blocks, guard.Header.Revision,
			func(m proto.Message) bool { return lose(m, victimID) })
		if err != nil {
			return 0, err
		}
		committed, err := outside.blocks(ctx, n)
		return committed.at.Sub(began), err
	})
}
