package controller

import (
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// Event is something that happened to the daemon.
type Event interface{ event() }

// Watched is a batch of the one watch, or a list of the whole prefix.
type Watched struct{ Batch store.Batch }

// Listed is a list of keys and mod revisions, to compare the image with.
type Listed struct{ List store.Snapshot }

// Fetched answers Fetch.
type Fetched struct {
	Keys []string
	Read store.Snapshot
	Err  error
}

// Committed answers Commit.
type Committed struct {
	Chunk  int64
	Result store.Result
	Err    error
}

// ReadBack answers Read.
type ReadBack struct {
	Chunk int64
	Read  store.Snapshot
	Err   error
}

// Elected is an event of the election.
type Elected struct{ Event election.Event }

// Pushed is an event of the push to brokers.
type Pushed struct{ Event rpc.PushEvent }

// Requested is a request that the active decides; answered by one Answer.
type Requested struct {
	ID      int64
	Request rpc.Request
}

func (Watched) event()   {}
func (Listed) event()    {}
func (Fetched) event()   {}
func (Committed) event() {}
func (ReadBack) event()  {}
func (Elected) event()   {}
func (Pushed) event()    {}
func (Requested) event() {}

// Action is something that the Loop wants done. It never waits for it.
type Action interface{ action() }

// Commit runs one transaction of the term.
type Commit struct {
	Chunk int64
	Claim epoch.Claim
	Txn   store.Txn
}

// Read reads keys, after a transaction on them whose outcome is unknown.
type Read struct {
	Chunk int64
	Keys  []string
}

// Fetch reads keys that the watch must have missed.
type Fetch struct{ Keys []string }

// List reads keys and mod revisions, to compare the image with: answered by
// Listed, if it succeeds.
type List struct{}

// Elect is an action of the election. Begin and Stop are for information: the
// Loop has acted on them. A Stop also cancels the term's calls of the store.
type Elect struct{ Action election.Action }

// Push is an action of the push to brokers.
type Push struct{ Action rpc.PushAction }

// Answer answers a request.
type Answer struct {
	ID     int64
	Answer rpc.Answer
}

func (Commit) action() {}
func (Read) action()   {}
func (Fetch) action()  {}
func (List) action()   {}
func (Elect) action()  {}
func (Push) action()   {}
func (Answer) action() {}
