package etcdtest

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Effect is what a Rule does to a call.
type Effect uint8

// The effects. A request reaches the server with all of them but Refuse, and
// Hold as long as it holds.
const (
	// Refuse answers UNAVAILABLE without sending; it fails the opening of a stream.
	Refuse Effect = iota
	// Hold keeps requests back until the rule is removed.
	Hold
	// HoldReply lets requests pass and keeps the replies back.
	HoldReply
	// LoseReply lets a request pass and answers UNAVAILABLE instead of its
	// reply; on a stream the message from the server vanishes.
	LoseReply
	// Slow delays requests, and on streams also the messages from the server,
	// by Rule.Delay each.
	Slow
)

// Rule says which calls are broken, and how.
type Rule struct {
	Effect Effect
	// Method is the last part of the call's name, such as "Txn", "Range",
	// "LeaseGrant", "LeaseKeepAlive" or "Watch". Empty means all.
	Method string
	// Match chooses among the calls of the method by their request, or, on a
	// stream, by the message that is to be broken. Nil means all. It is not
	// asked when a stream is opened.
	Match func(msg any) bool
	// Open confines the rule to streams that are open when it is added.
	Open bool
	// Times is how often the rule works; 0 means until it is removed.
	Times int
	Delay time.Duration
}

// Faults breaks single calls of a client. The client sees its own retries
// broken one by one.
type Faults struct {
	mu      sync.Mutex
	rules   []*Fault
	streams int // opened so far
}

// Fault is a rule at work.
type Fault struct {
	rule    Rule
	faults  *Faults
	streams int // opened before
	hits    int // guarded by faults.mu
	hit     chan struct{}
	removed chan struct{}
	remove  sync.Once
}

// DialOptions puts the faults into a client.
func (f *Faults) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream)}
}

// Add begins to apply a rule. Of several that fit a call the oldest works.
func (f *Faults) Add(r Rule) *Fault {
	x := &Fault{rule: r, faults: f, hit: make(chan struct{}), removed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	x.streams = f.streams
	f.rules = append(f.rules, x)
	return x
}

// Remove ends the rule and lets go what it holds.
func (x *Fault) Remove() { x.remove.Do(func() { close(x.removed) }) }

// Hit is closed when the rule has worked once.
func (x *Fault) Hit() <-chan struct{} { return x.hit }

// Hits is how often the rule has worked.
func (x *Fault) Hits() int {
	x.faults.mu.Lock()
	defer x.faults.mu.Unlock()
	return x.hits
}

// find counts and returns the rule with one of the effects that fits a message.
func (f *Faults) find(method string, msg any, effects ...Effect) *Fault {
	return f.findIn(0, method, msg, effects...)
}

// findIn is find for a message of the so many-th stream.
func (f *Faults) findIn(stream int, method string, msg any, effects ...Effect) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rules {
		if x.rule.Open && (stream == 0 || stream > x.streams) {
			continue
		}
		if x.fits(method, msg, effects) {
			if x.hits++; x.hits == 1 {
				close(x.hit)
			}
			return x
		}
	}
	return nil
}

func (x *Fault) fits(method string, msg any, effects []Effect) bool {
	select {
	case <-x.removed:
		return false
	default:
	}
	r := x.rule
	if r.Times > 0 && x.hits >= r.Times || r.Method != "" && r.Method != path.Base(method) {
		return false
	}
	for _, e := range effects {
		if e == r.Effect {
			return msg == nil || r.Match == nil || r.Match(msg)
		}
	}
	return false
}

// wait holds a call until the rule is removed, or for its delay.
func (x *Fault) wait(ctx context.Context) error {
	var delay <-chan time.Time
	if x.rule.Effect == Slow {
		t := time.NewTimer(x.rule.Delay)
		defer t.Stop()
		delay = t.C
	}
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-x.removed:
	case <-delay:
	}
	return nil
}

var errBroken = status.Error(codes.Unavailable, "broken by the test")

func (f *Faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	x := f.find(method, req, Refuse, Hold, HoldReply, LoseReply, Slow)
	if x == nil {
		return call(ctx, method, req, reply, cc, opts...)
	}
	effect := x.rule.Effect
	if effect == Refuse {
		return errBroken
	}
	if effect == Hold || effect == Slow {
		if err := x.wait(ctx); err != nil {
			return err
		}
	}
	err := call(ctx, method, req, reply, cc, opts...)
	if err == nil && effect == LoseReply {
		return errBroken
	}
	if effect == HoldReply {
		if err := x.wait(ctx); err != nil {
			return err
		}
	}
	return err
}

func (f *Faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if f.find(method, nil, Refuse) != nil {
		return nil, errBroken
	}
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams++
	return &faultyStream{ClientStream: s, faults: f, method: method, number: f.streams}, nil
}

// faultyStream breaks the messages of one stream.
type faultyStream struct {
	grpc.ClientStream
	faults *Faults
	method string
	number int // 1 is the first
}

func (s *faultyStream) SendMsg(m any) error {
	if x := s.faults.findIn(s.number, s.method, m, Hold, Slow); x != nil {
		if err := x.wait(s.Context()); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(m)
}

func (s *faultyStream) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		x := s.faults.findIn(s.number, s.method, m, HoldReply, LoseReply, Slow)
		if x == nil {
			return nil
		}
		if x.rule.Effect != LoseReply {
			return x.wait(s.Context())
		}
	}
}
