package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// patience is how long a question waits for what it asks for.
const patience = 15 * time.Second

// watchTTL sets how often the watch asks for a sign of life.
const watchTTL = 4 * time.Second

func main() {
	etcd := flag.String("etcd", "", "`host:port` of etcd")
	name := flag.String("cluster", "default", "`name` of the cluster")
	daemons := flag.String("daemons", "a,b", "`ids` of the daemons, the first of which is the one to freeze")
	brokers := flag.Int("brokers", 3, "`number` of brokers")
	flag.Parse()
	if err := run(*etcd, cluster.KeysOf(*name), strings.Split(*daemons, ","), *brokers); err != nil {
		fmt.Fprintln(os.Stderr, "splitbrain:", err)
		os.Exit(1)
	}
}

func run(etcd string, keys cluster.Keys, daemons []string, brokers int) error {
	w, err := newWitness(etcd, keys, daemons, brokers)
	if err != nil {
		return err
	}
	defer w.close()
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{etcd}})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	go func() { _ = election.Follow(ctx, etcdstore.New(client), keys.Prefix(), watchTTL, log, w.watched) }()

	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		text, err := w.ask(strings.Fields(questions.Text()))
		if err != nil {
			text = "failed " + err.Error()
		} else {
			text = "ok " + text
		}
		fmt.Println(strings.ReplaceAll(text, "\n", "; "))
	}
	return questions.Err()
}

// witness answers the script.
type witness struct {
	*ledger
	brokers int
	etcd    map[string]*relay // by daemon
	control []*relay          // by broker, from 1
	write   *hold             // of the first daemon
	command *hold             // for broker 1
}

func newWitness(etcd string, keys cluster.Keys, daemons []string, brokers int) (*witness, error) {
	w := &witness{ledger: newLedger(keys), brokers: brokers, etcd: map[string]*relay{}, write: newHold(), command: newHold()}
	h := w.write
	for _, id := range daemons {
		r, err := startRelay(etcd, w.txnTaps(id, h))
		if err != nil {
			return nil, err
		}
		w.etcd[id], h = r, nil
	}
	c := w.command
	for n := range brokers {
		listen, err := freeAddr()
		if err != nil {
			return nil, err
		}
		r, err := startRelay(listen, w.commandTaps(n+1, c))
		if err != nil {
			return nil, err
		}
		w.control, c = append(w.control, r), nil
	}
	return w, nil
}

func (w *witness) close() {
	for _, r := range w.etcd {
		r.close()
	}
	for _, r := range w.control {
		r.close()
	}
}

// ask answers one question of the script.
func (w *witness) ask(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if len(words) == 0 {
		return "", errors.New("nothing asked")
	}
	switch words[0] {
	case "etcd": // where this daemon finds etcd
		return w.oneOf(words, func(id string) (string, error) {
			if r := w.etcd[id]; r != nil {
				return r.addr(), nil
			}
			return "", fmt.Errorf("no daemon %s", id)
		})
	case "control": // where the controller reaches this broker
		return w.oneOf(words, func(id string) (string, error) {
			r, err := w.broker(id)
			if err != nil {
				return "", err
			}
			return r.addr(), nil
		})
	case "listen": // where this broker has to listen for that
		return w.oneOf(words, func(id string) (string, error) {
			r, err := w.broker(id)
			if err != nil {
				return "", err
			}
			return r.target, nil
		})
	case "endpoint": // of this daemon's services
		return w.oneOf(words, func(id string) (string, error) { return w.endpoint(ctx, id) })
	case "active": // until this daemon is
		return w.oneOf(words, func(id string) (string, error) { return w.active(ctx, id) })
	case "live": // until all brokers are, and the active knows: it commands them
		return "", w.await(ctx, "all brokers to be commanded", func() bool { return w.obeyed(0) })
	case "pushed": // until all brokers have obeyed partition states of the newest term
		return "", w.await(ctx, "all brokers to obey the newest term", func() bool { return w.obeyed(1) })
	case "hold-command":
		w.command.arm()
		return "", nil
	case "hold-write":
		w.write.arm()
		return "", nil
	case "held": // until both are
		err := w.await(ctx, "a write and a command to hold back", func() bool { return w.heldTxn != nil && w.heldCmd != nil })
		return "", err
	case "release":
		return w.letGo(ctx)
	case "verdict":
		return w.verdict(words[1:])
	}
	return "", fmt.Errorf("unknown question %q", words[0])
}

func (w *witness) oneOf(words []string, answer func(string) (string, error)) (string, error) {
	if len(words) != 2 {
		return "", fmt.Errorf("%s of whom?", words[0])
	}
	return answer(words[1])
}

func (w *witness) broker(id string) (*relay, error) {
	for n, r := range w.control {
		if fmt.Sprint(n+1) == id {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no broker %s", id)
}

// endpoint is where the daemon is reached, once etcd knows of it.
func (w *witness) endpoint(ctx context.Context, id string) (string, error) {
	var at string
	err := w.await(ctx, "daemon "+id+" to appear in etcd", func() bool {
		if c := w.image.Controller; c != nil && c.Record.GetId() == id {
			at = c.Record.GetEndpoint()
		}
		for _, c := range w.image.Candidates {
			if c.Record.GetId() == id {
				at = c.Record.GetEndpoint()
			}
		}
		return at != ""
	})
	return at, err
}

// active is the epoch of the daemon's term.
func (w *witness) active(ctx context.Context, id string) (string, error) {
	var c claim
	err := w.await(ctx, "daemon "+id+" to be active", func() bool {
		c = w.last()
		return c.daemon == id && w.image.Controller != nil
	})
	return fmt.Sprint(c.epoch), err
}

// obeyed reports whether every broker has obeyed a command of the newest term
// about at least so many partitions.
func (w *witness) obeyed(states int) bool {
	brokers := map[int]bool{}
	for _, c := range w.sent {
		if c.epoch == w.last().epoch && c.states >= states && c.answered && c.refusal == pb.Refusal_REFUSAL_UNSPECIFIED {
			brokers[c.broker] = true
		}
	}
	return len(brokers) == w.brokers
}

// letGo lets what is held back arrive, and tells how it was answered.
func (w *witness) letGo(ctx context.Context) (string, error) {
	w.mu.Lock()
	txn, cmd := w.heldTxn, w.heldCmd
	w.mu.Unlock()
	if txn == nil || cmd == nil {
		return "", errors.New("nothing is held back")
	}
	w.write.letGo()
	w.command.letGo()
	if err := w.await(ctx, "answers to what was held back", func() bool { return txn.answered && cmd.answered }); err != nil {
		return "", err
	}
	return fmt.Sprintf("etcd answered succeeded=%t, broker %d answered %s", txn.applied, cmd.broker, answerOf(cmd)), nil
}
