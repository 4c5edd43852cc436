package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/hook"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// TestServeHook: a hook that hangs is run once in each term, holds up neither a
// take-over nor a stop, and ends with the daemon.
func TestServeHook(t *testing.T) {
	etcd := etcdtest.Start(t)
	calls := filepath.Join(t.TempDir(), "calls")
	command := fmt.Sprintf(`sh -c 'echo $CONTROLLERD_EPOCH $CONTROLLERD_ID $CONTROLLERD_PREVIOUS_ID $CONTROLLERD_PREVIOUS_CAUSE $$ >>%s; exec sleep 1000'`, calls)
	start := func(id string) *process {
		return startServe(t, etcd.Endpoint(), "--id", id, "--lease-ttl", "20s", "--on-controller-change", command)
	}
	var pids []int // of the hooks, in order
	called := func(want ...string) {
		t.Helper()
		var got []string
		eventually(t, "hooks "+strings.Join(want, ", "), func() bool {
			got, pids = nil, nil
			text, _ := os.ReadFile(calls)
			for _, line := range linesOf(string(text)) {
				i := strings.LastIndex(line, " ")
				pid, err := strconv.Atoi(line[i+1:])
				if err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				got, pids = append(got, line[:i]), append(pids, pid)
			}
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("hooks %q, want %q", got, want)
		}
	}

	a := start("a")
	a.says(`msg=active controller=a epoch=1`)
	called("1 a")
	b := start("b")
	eventually(t, "b stands by", func() bool {
		return len(decode[controllersView](t, cli("controller", "list", "-o", "json", "--server", a.address())).Controllers) == 2
	})
	told := time.Now()
	cli("controller", "transfer", "b", "--server", a.address()).want(t, exitOK)
	if took := time.Since(told); took > 2*time.Second {
		t.Errorf("b took over after %v", took)
	}
	called("1 a", "2 b a transferred")

	told = time.Now()
	b.stops(syscall.SIGTERM)
	if took := time.Since(told); took > 4*time.Second {
		t.Errorf("b stopped after %v", took)
	}
	b.says(`level=WARN msg="hook failed" .* epoch=2 error="ended with its caller`)
	a.says(`msg=active controller=a epoch=3`)
	called("1 a", "2 b a transferred", "3 a b shutdown")
	if err := syscall.Kill(pids[1], 0); err == nil {
		t.Errorf("the hook of b still runs")
	}

	if _, err := etcd.Client(t).Delete(t.Context(), cluster.KeysOf("test").Controller()); err != nil {
		t.Fatal(err)
	}
	called("1 a", "2 b a transferred", "3 a b shutdown", "4 a a lost")
	a.stops(syscall.SIGTERM)
	again := start("a") // which cannot go on with a term: it has one of its own
	called("1 a", "2 b a transferred", "3 a b shutdown", "4 a a lost", "5 a a shutdown")
	again.stops(syscall.SIGTERM)
}

func TestChangeIn(t *testing.T) {
	im := cluster.NewImage(cluster.KeysOf("test"))
	v := rpc.View{Image: im, Self: "b", ClusterUUID: "u", Claim: epoch.Claim{Epoch: 9, Rev: 100}}
	if c := changeIn(v); c != (hook.Change{ClusterUUID: "u", Epoch: 9, Controller: "b"}) {
		t.Errorf("without any record: %+v", c)
	}
	for e, cause := range map[cluster.Epoch]pb.EndCause{3: pb.EndCause_END_CAUSE_RESIGNED, 7: pb.EndCause_END_CAUSE_SELF_FENCED, 9: 0, 11: 0} {
		im.Terms[e] = &cluster.Term{Record: &pb.TermRecord{
			Epoch: int64(e), Controller: fmt.Sprint("c", e), Endpoint: "e", BeganMs: 1_800_000_000_000, EndCause: cause, EndReason: "r",
		}}
	}
	if c := changeIn(v); c != (hook.Change{
		ClusterUUID: "u", Epoch: 9, Controller: "b", Endpoint: "e", Began: "2027-01-15T08:00:00.000Z",
		PreviousEpoch: 7, PreviousController: "c7", PreviousCause: "self_fenced", PreviousReason: "r",
	}) {
		t.Errorf("with gaps: %+v", c)
	}
}
