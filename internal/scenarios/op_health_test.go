package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// samplePeriod is how often one daemon is asked everything.
const samplePeriod = 200 * time.Millisecond

// healthWatch asks daemons again and again for all that they say of themselves.
type healthWatch struct {
	leaderWatch
	t *testing.T

	mu     sync.Mutex
	faults []string
	seats  []seatAnswer
}

// seatAnswer is what a daemon said of who holds the seat.
type seatAnswer struct {
	id, controller string
	epoch          int64
	doubted        bool // it said that this may be old
	sent, came     time.Time
}

// askAll asks a daemon for all of it, a request at a time.
func (h *healthWatch) askAll(p *process, addr string) {
	client := &http.Client{Timeout: samplePeriod} // who is stopped does not answer
	conn, err := grpc.NewClient(p.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	health := healthpb.NewHealthClient(conn)
	admin := pb.NewAdminServiceClient(conn)
	h.every(samplePeriod, func() (leaderAnswer, error) { return askLeader(client, p.id, addr) })
	h.every(samplePeriod, func() (leaderAnswer, error) { return h.askService(p.id, admin, health) })
	h.every(samplePeriod, func() (leaderAnswer, error) {
		if resp, err := client.Get("http://" + addr + "/livez"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				h.fault("%s said %d of being alive", p.id, resp.StatusCode)
			}
		}
		return leaderAnswer{}, io.EOF // it says nothing of the seat
	})
}

// askService asks the services: who is active, and who holds the seat.
func (h *healthWatch) askService(id string, admin pb.AdminServiceClient, health healthpb.HealthClient) (leaderAnswer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), samplePeriod)
	defer cancel()
	a := leaderAnswer{id: id, sent: time.Now()}
	seen, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
	if err != nil {
		return a, err
	}
	came := time.Now()
	h.mu.Lock()
	h.seats = append(h.seats, seatAnswer{
		id: id, controller: seen.GetControllerId(), epoch: seen.GetEpoch(), sent: a.sent, came: came,
		doubted: slices.ContainsFunc(seen.GetProblems(), func(p string) bool { return strings.Contains(p, "may be old") }),
	})
	h.mu.Unlock()
	active, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: rpc.HealthActive})
	if err != nil {
		return a, err
	}
	a.came = time.Now()
	if active.GetStatus() == healthpb.HealthCheckResponse_SERVING {
		a.epoch = seen.GetEpoch()
	}
	if again, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{}); err != nil || again.GetEpoch() != seen.GetEpoch() {
		return a, io.EOF // it may have been active under either
	}
	return a, nil
}

// askFrozen sends requests to a daemon that is stopped: the first that it hears
// when it goes on.
func (h *healthWatch) askFrozen(id, addr string) {
	var sent sync.WaitGroup
	for range inquirers {
		sent.Add(1)
		trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Done() }}
		client := &http.Client{Timeout: limit, Transport: traced{&http.Transport{}, trace}}
		h.wg.Go(func() {
			defer client.CloseIdleConnections()
			if a, err := askLeader(client, id, addr); err == nil {
				h.note(a)
			}
		})
	}
	sent.Wait()
}

// traced tells of each request what becomes of it.
type traced struct {
	*http.Transport
	trace *httptrace.ClientTrace
}

// RoundTrip is that of the transport.
func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), t.trace)))
}

func (h *healthWatch) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// judgeSeats reports each answer about the seat that named somebody who had not
// held it for long, without a word of doubt.
func (h *healthWatch) judgeSeats(w *world) {
	const stale = takeover
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		h.t.Error(f)
	}
	changes := w.tape.after(0, func(key string) bool { return key == w.keys.Controller() })
	for _, s := range h.seats {
		if s.controller == "" || s.doubted {
			continue
		}
		held := false
		for i, c := range changes {
			until := time.Now()
			if i+1 < len(changes) {
				until = changes[i+1].at
			}
			r := &pb.ControllerRecord{}
			held = held || !c.Deleted && proto.Unmarshal(c.KV.Value, r) == nil && r.GetId() == s.controller && until.After(s.sent.Add(-stale))
		}
		if !held {
			h.t.Errorf("at %v %s said that %s has the seat under epoch %d", s.came, s.id, s.controller, s.epoch)
		}
	}
}

// All daemons are asked for everything all the time: at the start, at a
// hand-over, stopped and going on, cut off from etcd, and while etcd has no
// quorum. Who lives says so, at most one says that it is active, and nobody
// names somebody as the controller who has not been it for long.
func TestOP1HealthTellsNoLies(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 3)
	w := ofEndpoints(t, ms[0].cfg.Addr)
	watch := &healthWatch{leaderWatch: leaderWatch{stop: make(chan struct{})}, t: t}
	proxy := startProxy(t, ms[0].cfg.Addr)
	daemons, pages := map[string]*process{}, map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		w.endpoints = ms.endpoints()
		flags := with()
		if id == "c" {
			w.endpoints, flags = []string{proxy.Addr()}, with("--etcd-endpoints-only")
		}
		option, address := withPages()
		daemons[id] = w.process(id, flags, option)
		pages[id] = address(t)
		watch.askAll(daemons[id], pages[id])
	}
	says := func(id, path string, code int, within time.Duration) {
		t.Helper()
		client := &http.Client{Timeout: soon}
		w.await(fmt.Sprintf("%s answers %d to %s", id, code, path), within, func() bool {
			resp, err := client.Get("http://" + pages[id] + path)
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == code
		})
	}
	for range longOr(20, 2) {
		claim, old := w.seat()
		says(old, "/leader", http.StatusOK, limit)
		daemons[old].freeze()
		next := w.seated(claim.Epoch+1, 2*takeover)
		says(next, "/leader", http.StatusOK, soon)
		watch.askFrozen(old, pages[old])
		daemons[old].thaw()
		says(old, "/leader", http.StatusServiceUnavailable, soon)
		w.await("all are candidates", limit, func() bool { return len(w.candidates()) == 3 })
		w.resign()

		w.seatTo("c")
		says("c", "/leader", http.StatusOK, limit)
		proxy.Blackhole()
		says("c", "/leader", http.StatusServiceUnavailable, takeover)
		says("c", "/readyz", http.StatusServiceUnavailable, limit)
		proxy.Heal()
		says("c", "/readyz", http.StatusOK, limit)
	}
	for _, m := range ms[1:] {
		m.signal(syscall.SIGSTOP)
	}
	for id := range pages {
		says(id, "/leader", http.StatusServiceUnavailable, takeover)
		says(id, "/readyz", http.StatusServiceUnavailable, limit)
	}
	for _, m := range ms[1:] {
		m.signal(syscall.SIGCONT)
	}
	w.await("somebody is active", limit, func() bool {
		_, id := w.seat()
		return id != "" && watch.heard(func(a leaderAnswer) bool { return a.id == id && a.epoch == int64(w.epoch()) })
	})
	for id := range pages {
		says(id, "/readyz", http.StatusOK, limit)
	}
	watch.judge(t)
	watch.judgeSeats(w)
}

// samplesOf are the samples of a daemon's metrics by name and labels, and the
// names of those that are said to be nothing on a standby.
func samplesOf(client *http.Client, addr string) (samples map[string]float64, ofActive []string, err error) {
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	samples = map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if about, ok := strings.CutPrefix(lines.Text(), "# HELP "); ok {
			if name, help, _ := strings.Cut(about, " "); regexp.MustCompile(`\b(0|none) on a standby`).MatchString(help) {
				ofActive = append(ofActive, name)
			}
			continue
		}
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 && lines.Text()[0] != '#' {
			if samples[lines.Text()[:i]], err = strconv.ParseFloat(lines.Text()[i+1:], 64); err != nil {
				return nil, nil, err
			}
		}
	}
	return samples, ofActive, lines.Err()
}

// The seat goes round among three daemons, whose metrics are read all the time,
// and one of which is stopped and goes on. At most one says that it is active,
// all that only an active has to tell is 0 at the others, and the epoch of each
// gets to be that of etcd.
func TestOP2MetricsAfterTheSeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := &healthWatch{leaderWatch: leaderWatch{stop: make(chan struct{})}, t: t}
	daemons, pages := map[string]*process{}, map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		option, address := withPages()
		daemons[id] = w.process(id, option)
		addr := address(t)
		pages[id] = addr
		client := &http.Client{Timeout: soon}
		watch.every(20*time.Millisecond, func() (leaderAnswer, error) {
			a := leaderAnswer{id: id, sent: time.Now()}
			samples, ofActive, err := samplesOf(client, addr)
			if err != nil {
				return a, err
			}
			a.came = time.Now()
			if samples["controllerd_active"] == 1 {
				a.epoch = int64(samples["controllerd_epoch"])
				return a, nil
			}
			if len(ofActive) < 10 {
				watch.fault("%s has only %v for an active", id, ofActive)
			}
			for sample, v := range samples {
				name, _, _ := strings.Cut(sample, "{")
				if v != 0 && slices.Contains(ofActive, name) {
					watch.fault("%s is not active, and says %s %v", id, sample, v)
				}
			}
			return a, nil
		})
	}
	w.startBrokers(3)
	w.create("orders", 12, 3)
	w.converged(soon)
	rounds := longOr(20, 4)
	for round := range rounds {
		claim, old := w.seat()
		w.await("the active says so", limit, func() bool {
			return watch.heard(func(a leaderAnswer) bool { return a.id == old && a.epoch == int64(claim.Epoch) })
		})
		if round == rounds/2 {
			daemons[old].freeze()
			w.seated(claim.Epoch+1, 2*takeover)
			daemons[old].thaw()
			w.await("all are candidates", limit, func() bool { return len(w.candidates()) == 3 })
		} else {
			w.resign()
		}
		client := &http.Client{Timeout: soon}
		for id, addr := range pages {
			w.await("the epoch of "+id+" is that of etcd", soon, func() bool {
				samples, _, err := samplesOf(client, addr)
				return err == nil && samples["controllerd_epoch"] == float64(w.epoch())
			})
		}
	}
	watch.judge(t)
	watch.judgeSeats(w)
}
