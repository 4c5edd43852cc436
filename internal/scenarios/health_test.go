package scenarios

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/controllerd/controllerd/internal/metrics"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// healthOf is what a daemon says of its health: the codes of /livez, /readyz
// and /leader, and the letters of the names that its gRPC service serves: e the
// empty one, b, a and m the services, l who is active.
func (d *daemon) healthOf() string {
	var out strings.Builder
	for _, path := range []string{"/livez", "/readyz", "/leader"} {
		fmt.Fprint(&out, d.page(path).Code, " ")
	}
	for _, name := range []struct{ letter, service string }{
		{"e", ""}, {"b", pb.BrokerService_ServiceDesc.ServiceName}, {"a", pb.AdminService_ServiceDesc.ServiceName},
		{"m", pb.MetadataService_ServiceDesc.ServiceName}, {"l", rpc.HealthActive},
	} {
		if d.serving(name.service) {
			out.WriteString(name.letter)
		}
	}
	return out.String()
}

// page is one of the daemon's HTTP pages.
func (d *daemon) page(path string) *httptest.ResponseRecorder {
	pages := metrics.Pages(d.Controller, metrics.NewRegistry(d.Controller, &metrics.Calls{}, ""), "", slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// measures reports whether the daemon's metrics have a line.
func (d *daemon) measures(line string) bool {
	return strings.Contains(d.page("/metrics").Body.String(), "\n"+line+"\n")
}

// healthy waits until a daemon says so of its health.
func (w *world) healthy(d *daemon, want string, within time.Duration) {
	w.t.Helper()
	var last string
	if !poll(within, func() bool { last = d.healthOf(); return last == want }) {
		w.t.Fatalf("%s says %q of its health, want %q", d.ID, last, want)
	}
}

// Health in every state: an active and a standby, no space in etcd, no etcd.
func TestHealthStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a", brief, proxied())
	w.active(1, soon)
	w.healthy(a, "200 200 200 ebaml", soon)
	b := w.daemon("b")
	w.candidateLease("b", 0)
	w.healthy(b, "200 200 503 ebam", soon)

	w.startBrokers(1)
	w.etcd.SetNoSpace(true)
	if _, err := a.admin.CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "payments", Partitions: 1, ReplicationFactor: 1}}}); err == nil {
		t.Error("a topic was created without space")
	}
	w.healthy(a, "200 503 200 ml", soon)
	w.healthy(b, "200 200 503 ebam", soon)
	w.etcd.SetNoSpace(false)
	w.healthy(a, "200 200 200 ebaml", limit)

	a.proxy.Blackhole()
	w.healthy(a, "200 503 503 ", limit)
	w.healthy(b, "200 200 200 ebaml", limit)
	a.proxy.Heal()
	w.healthy(a, "200 200 503 ebam", limit)

	list, err := a.health.List(w.call(), &healthpb.HealthListRequest{})
	if err != nil || len(list.GetStatuses()) != 5 || list.GetStatuses()[rpc.HealthActive].GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", list, err)
	}
}

// The owner of the state hangs: nobody tells the pages that the lease has run
// out. They look at it themselves.
func TestHealthWhileOwnerHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a", brief)
	w.active(1, soon)
	w.healthy(a, "200 200 200 ebaml", soon)
	b := w.daemon("b")
	w.candidateLease("b", 0)
	end := hang(w, a)
	defer end()
	if w.active(2, takeover) != b {
		t.Fatal("b did not follow")
	}
	if got := a.healthOf(); !strings.HasPrefix(got[8:], "503 ") || strings.HasSuffix(got, "l") {
		t.Errorf("a hangs, b is active, and a says %q of its health", got)
	}
	w.healthy(a, "200 503 503 ", soon) // it may be that it only has much to do: it need not be started again yet
	for _, want := range []string{"controllerd_active 0", "controllerd_candidates 0", "controllerd_epoch 1"} {
		if !a.measures(want) {
			t.Errorf("a hangs, and its metrics do not say %q", want)
		}
	}
	w.healthy(b, "200 200 200 ebaml", soon)
}

// leaderAnswer is an answer of /leader.
type leaderAnswer struct {
	id         string
	sent, came time.Time
	epoch      int64 // 0: not the leader
}

// leaderWatch asks daemons again and again who leads.
type leaderWatch struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	answers []leaderAnswer
}

// inquirers is how many ask one daemon at the same time.
const inquirers = 8

// ask asks one daemon, some requests at a time, so that there are always some
// under way.
func (l *leaderWatch) ask(id, addr string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inquirers}, Timeout: limit}
	for range inquirers {
		l.every(10*time.Millisecond, func() (leaderAnswer, error) { return askLeader(client, id, addr) })
	}
}

// every keeps an answer, again and again, until judge.
func (l *leaderWatch) every(period time.Duration, ask func() (leaderAnswer, error)) {
	l.wg.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			if a, err := ask(); err == nil {
				l.note(a)
			}
		}
	})
}

func (l *leaderWatch) note(a leaderAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// askLeader asks a daemon's page.
func askLeader(client *http.Client, id, addr string) (leaderAnswer, error) {
	a := leaderAnswer{id: id, sent: time.Now()}
	resp, err := client.Get("http://" + addr + "/leader")
	if err != nil {
		return a, err
	}
	_, _ = fmt.Fscanf(resp.Body, "active under epoch %d", &a.epoch) // or it is not
	_ = resp.Body.Close()
	a.came = time.Now()
	if (resp.StatusCode == http.StatusOK) != (a.epoch > 0) {
		a.epoch = -1
	}
	return a, nil
}

// heard reports whether some answer is as it should be.
func (l *leaderWatch) heard(like func(leaderAnswer) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if like(a) {
			return true
		}
	}
	return false
}

// judge reports each answer by which a daemon said that it leads though it was
// asked only after another one had said so under a higher epoch.
func (l *leaderWatch) judge(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	first := map[int64]leaderAnswer{} // the first that came under an epoch
	for _, a := range l.answers {
		if a.epoch < 0 {
			t.Errorf("%s: status and text of an answer differ", a.id)
		}
		if f, ok := first[a.epoch]; a.epoch > 0 && (!ok || a.came.Before(f.came)) {
			first[a.epoch] = a
		}
	}
	for _, a := range l.answers {
		for e, f := range first {
			if a.epoch > 0 && a.epoch < e && a.sent.After(f.came) {
				t.Fatalf("%s said that it leads under epoch %d when it was asked %v after %s had said so under epoch %d", a.id, a.epoch, a.sent.Sub(f.came), f.id, e)
			}
		}
	}
}

// TestLeaderPageNeverTwice: two daemons that are stopped and go on, again and
// again, and that are asked all the time: /leader is never 200 on both.
func TestLeaderPageNeverTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := &leaderWatch{stop: make(chan struct{})}
	daemons := map[string]*process{}
	for _, id := range []string{"a", "b"} {
		option, address := withPages()
		daemons[id] = w.process(id, option)
		watch.ask(id, address(t))
	}
	for round := range 3 {
		claim, old := w.seat()
		w.await("the active says so", soon, func() bool {
			return watch.heard(func(a leaderAnswer) bool { return a.id == old && a.epoch == int64(claim.Epoch) })
		})
		daemons[old].freeze()
		next := w.seated(claim.Epoch+1, takeover)
		w.await("the next one says so", soon, func() bool {
			return watch.heard(func(a leaderAnswer) bool { return a.id == next && a.epoch > int64(claim.Epoch) })
		})
		pass(time.Duration(round) * ttl / 4)
		thawed := time.Now()
		daemons[old].thaw()
		w.await("the old one says that it does not lead", soon, func() bool {
			return watch.heard(func(a leaderAnswer) bool { return a.id == old && a.epoch == 0 && a.came.After(thawed) })
		})
		w.await("it stands by", soon, func() bool { return len(w.candidates()) == 2 })
		w.resign() // and a change in order
	}
	watch.judge(t)
}
