package rpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestWords(t *testing.T) {
	refused := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New(`topic "a" is gone`), `topic "a" is gone`},
		{fmt.Errorf("dial broker 1 at b:1: %w", refused), "dial broker 1 at b:1: connection refused"},
		{errors.Join(errors.New("no hello in time"), status.Error(codes.Canceled, "context canceled")), "no hello in time; context canceled"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), "EOF"},
		{status.Error(codes.Internal, `topic "a" is gone`), `topic "a" is gone`},
	} {
		if got := Words(tt.err); got != tt.want {
			t.Errorf("%v\nis %s\nwant %s", tt.err, got, tt.want)
		}
	}
}

// TestRefusalsHaveWords: also those that the protocol gets later.
func TestRefusalsHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for n := range pb.Refusal_name {
		r := pb.Refusal(n)
		words, ok := refusals[r]
		if admitted := r == pb.Refusal_REFUSAL_UNSPECIFIED; ok == admitted || seen[words] || strings.Contains(words, "_") {
			t.Errorf("%v: %q", r, words)
		}
		seen[words] = true
	}
	if got := refusalWords(99); got == "" || seen[got] {
		t.Errorf("of one that is not known: %q", got)
	}
}

// TestContactsNameWhatIsStuck: a broker that gets its commands, but cannot do
// one of them, has a problem too.
func TestContactsNameWhatIsStuck(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1), hostedBy(1))
	want := func(problem string) {
		t.Helper()
		if got := h.p.Contacts(h.im)[1].Problem; got != problem {
			t.Errorf("problem %q, want %q", got, problem)
		}
	}
	want("")
	for _, i := range []int32{1, 0} {
		h.change("a", i, elect(1))
		h.step()
		h.result(1, "a", i, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	}
	want("a/0: because, and 1 more")
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	want("a/1: because")
	h.acks(1, pb.Refusal_REFUSAL_UNAVAILABLE, 1)
	want(refusals[pb.Refusal_REFUSAL_UNAVAILABLE])
}
