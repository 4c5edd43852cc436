package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// verdict prints what happened, and fails with all that should not have. The
// logs are what the brokers wrote, in order of their numbers.
func (w *witness) verdict(logs []string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &account{witness: w, out: os.Stderr}
	v.terms()
	v.etcdChanges()
	v.failedGuards()
	v.refusedCommands()
	v.brokerLogs(logs)
	if len(v.wrong) > 0 {
		return "", errors.Join(v.wrong...)
	}
	return fmt.Sprintf("%d commands refused by gates, %d guards failed", v.refused, v.unmet), nil
}

// account collects what is wrong while it tells the story.
type account struct {
	*witness
	out      io.Writer
	old, new claim // the term that was frozen, and the one that followed it
	refused  int
	unmet    int
	wrong    []error
}

func (v *account) fault(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Errorf(format, args...))
}

func (v *account) say(format string, args ...any) { fmt.Fprintf(v.out, "   "+format+"\n", args...) }

// terms checks that the frozen daemon was followed by another one and is
// active again, each time with the next epoch.
func (v *account) terms() {
	for i, c := range v.claims {
		if i > 0 && c.epoch != v.claims[i-1].epoch+1 {
			v.fault("epoch %d follows epoch %d", c.epoch, v.claims[i-1].epoch)
		}
	}
	if len(v.claims) != 3 || v.claims[0].daemon == v.claims[1].daemon || v.claims[0].daemon != v.claims[2].daemon {
		v.fault("want three terms, of the frozen daemon, of the other, and of the frozen one again: have %+v", v.claims)
	}
	if len(v.claims) > 1 {
		v.old, v.new = v.claims[0], v.claims[1]
	}
}

// etcdChanges lists what changed from the new claim on, and who did it.
func (v *account) etcdChanges() {
	v.say("what changed in etcd from revision %d on, at which epoch %d was won:", v.new.rev, v.new.epoch)
	table := tabwriter.NewWriter(v.out, 0, 0, 2, ' ', 0)
	for _, c := range v.changes {
		if c.rev < v.new.rev {
			continue
		}
		action := "put"
		if c.deleted {
			action = "delete"
		}
		fmt.Fprintf(table, "     %d\t%s\t%s\t%s\n", c.rev, action, c.key, v.author(c))
	}
	table.Flush()
}

// author says who made a change, and checks that he was allowed to.
func (v *account) author(c change) string {
	for _, e := range c.epochs {
		if e <= v.old.epoch {
			v.fault("revision %d: %s holds a record that epoch %d wrote", c.rev, c.key, e)
		}
	}
	owned := strings.HasPrefix(c.key, "topics/") || strings.HasPrefix(c.key, "partitions/")
	w := v.writes[c.rev]
	switch {
	case w == nil && c.deleted && !owned:
		return "etcd, the lease ended"
	case w == nil:
		v.fault("revision %d: nobody knows who changed %s", c.rev, c.key)
		return "nobody knows"
	case w.mints:
		return fmt.Sprintf("%s, takes the seat with epoch %d", w.daemon, v.claimOf(c.rev).epoch)
	case w.guard != 0:
		at := v.claimOf(w.guard)
		if at.epoch <= v.old.epoch {
			v.fault("revision %d: %s was changed under the claim of epoch %d", c.rev, c.key, at.epoch)
		}
		return fmt.Sprintf("%s, under the claim of epoch %d", w.daemon, at.epoch)
	case owned:
		v.fault("revision %d: %s changed %s without a claim", c.rev, w.daemon, c.key)
	}
	return w.daemon + ", a session or a candidate"
}

// failedGuards checks that the write of the old term that arrived late met
// nothing but its own guard.
func (v *account) failedGuards() {
	seat := v.keys.Controller()
	for _, w := range v.failed {
		if w.guard != 0 && slices.Contains(w.unmet, seat) {
			v.unmet++
		}
	}
	w := v.heldTxn
	switch others := v.others(w); {
	case w == nil || !w.answered:
		v.fault("no write of epoch %d arrived late", v.old.epoch)
	case w.applied:
		v.fault("etcd applied a write of epoch %d at revision %d", v.old.epoch, w.rev)
	case w.guard != v.old.rev:
		v.fault("the write that arrived late is of revision %d, not of the frozen term's %d", w.guard, v.old.rev)
	case len(others) > 0:
		v.fault("the guard was not all that the late write met: %v did not hold either", others)
	default:
		v.say("the late write of epoch %d: succeeded=false, its other conditions held", v.old.epoch)
	}
	if v.unmet == 0 {
		v.fault("no guard failed: nothing was proved")
	}
}

// others are the conditions that did not hold beside the guard.
func (v *account) others(w *write) []string {
	if w == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.unmet), func(key string) bool {
		return key == v.keys.Controller() || key == v.keys.ControllerEpoch()
	})
}

func answerOf(c *command) string {
	if c.refusal == pb.Refusal_REFUSAL_UNSPECIFIED {
		return "ADMITTED"
	}
	return strings.TrimPrefix(c.refusal.String(), "REFUSAL_")
}

// refusedCommands checks what the brokers answered.
func (v *account) refusedCommands() {
	for _, c := range v.sent {
		if c.answered && c.refusal == pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH {
			v.refused++
		}
	}
	c := v.heldCmd
	switch {
	case c == nil || !c.answered:
		v.fault("no command of epoch %d arrived late", v.old.epoch)
	case c.epoch != v.old.epoch:
		v.fault("the command that arrived late is of epoch %d, not of the frozen term's %d", c.epoch, v.old.epoch)
	case c.refusal != pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH:
		v.fault("broker %d answered a command of epoch %d with %s", c.broker, c.epoch, answerOf(c))
	default:
		v.say("the late command of epoch %d to broker %d, about %d partitions: %s", c.epoch, c.broker, c.states, answerOf(c))
	}
	if v.refused == 0 {
		v.fault("no command was refused: nothing was proved")
	}
}

// decision is one line of a broker's log.
type decision struct {
	Time      time.Time              `json:"time"`
	Command   string                 `json:"command"`
	Sender    string                 `json:"sender"`
	CE        cluster.Epoch          `json:"ce"`
	BE        cluster.BrokerEpoch    `json:"be"`
	LE        cluster.LeaderEpoch    `json:"le"`
	PE        cluster.PartitionEpoch `json:"pe"`
	Topic     string                 `json:"topic"`
	TopicID   string                 `json:"topic_id"`
	Partition int32                  `json:"partition"`
	Result    string                 `json:"result"`
}

func (d *decision) observation() broker.Observation {
	id, _ := cluster.ParseTopicID(d.TopicID) // none: about the whole command
	return broker.Observation{
		Time: d.Time, Command: d.Command, Sender: d.Sender, ControllerEpoch: d.CE, BrokerEpoch: d.BE,
		Topic: d.Topic, TopicID: id, Partition: d.Partition, LeaderEpoch: d.LE, PartitionEpoch: d.PE, Result: d.Result,
	}
}

// obeyed reports whether the gate let the command through.
func (d *decision) obeyed() bool {
	return slices.Contains([]string{fencing.Admitted.String(), fencing.IsrAdopted.String(), fencing.Already.String()}, d.Result)
}

// brokerLogs checks what the brokers themselves say: whom they obeyed, in
// which order. The simulation's invariants do the checking.
func (v *account) brokerLogs(logs []string) {
	if len(logs) != v.brokers {
		v.fault("%d logs of %d brokers", len(logs), v.brokers)
	}
	refused := 0
	for n, file := range logs {
		lines, err := readLog(file)
		if err != nil {
			v.fault("read the log of broker %d: %w", n+1, err)
			continue
		}
		count := map[cluster.Epoch]int{}
		for _, d := range lines {
			v.checker.Accepted(sim.Accepted{At: d.Time.Sub(v.began), Broker: cluster.BrokerID(n + 1), Observation: d.observation()})
			if d.obeyed() {
				count[d.CE]++
			}
			if d.Result == string(cluster.StaleControllerEpoch) {
				refused++
			}
		}
		v.say("broker %d obeyed %s", n+1, v.inTurn(n+1, count))
	}
	if refused == 0 {
		v.fault("no broker says that it refused a command")
	}
	for _, violation := range v.checker.Violations() {
		v.wrong = append(v.wrong, violation)
	}
}

// inTurn tells how many decisions of each term a broker obeyed, and checks
// that it heard of all of them.
func (v *account) inTurn(n int, count map[cluster.Epoch]int) string {
	var parts []string
	for _, c := range v.claims {
		if count[c.epoch] == 0 {
			v.fault("broker %d obeyed nothing of epoch %d", n, c.epoch)
		}
		parts = append(parts, fmt.Sprintf("%d of %s with epoch %d", count[c.epoch], c.daemon, c.epoch))
	}
	return strings.Join(parts, ", then ")
}

// readLog reads the lines of a broker that may still write: the last one counts
// only if it is whole.
func readLog(file string) ([]decision, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []decision
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var d decision
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
}
