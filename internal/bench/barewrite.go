package main

import (
	"context"
	"errors"
	"math"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
)

// What a daemon does too: blocksPerTxn are those that fit beside the two
// conditions of a guard.
const (
	blocksPerTxn = 126
	inFlight     = 16
	wholeBlocks  = math.MaxInt
)

// bareWay is how a bare client writes.
type bareWay struct {
	perKey   int // records under a key
	perTxn   int // keys in a transaction
	inFlight int // transactions at a time
}

// bareBlock is a value under a key of the bare client.
type bareBlock struct {
	key    string
	rev    int64 // 0: not stored yet
	record proto.Message
	next   proto.Message // a copy, to be changed
}

// write changes values and puts those that it changed, each under the condition
// that it is the one known, and all under a guard. It returns how many. One
// goroutine changes and encodes, as in the loop of a daemon.
func (c *contender) write(ctx context.Context, way bareWay, blocks []*bareBlock, guard int64, change func(proto.Message) bool) (int, error) {
	slots := make(chan struct{}, way.inFlight)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	send := func(chunk []*bareBlock, txn clientv3.Txn) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			resp, err := txn.Commit()
			if err == nil && !resp.Succeeded {
				err = errors.New("a condition of the bare client failed")
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			for _, b := range chunk {
				b.rev = resp.Header.Revision
			}
		})
	}
	changed := 0
	var chunk []*bareBlock
	for i, b := range blocks {
		if change(b.next) {
			changed++
			chunk = append(chunk, b)
		}
		if len(chunk) == way.perTxn || i == len(blocks)-1 && len(chunk) > 0 {
			send(chunk, c.guarded(ctx, guard, chunk))
			chunk = nil
		}
	}
	wg.Wait()
	return changed, failed
}

// guarded is one transaction of bare puts.
func (c *contender) guarded(ctx context.Context, guard int64, chunk []*bareBlock) clientv3.Txn {
	conds := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(bareEpoch), "=", guard),
		clientv3.Compare(clientv3.ModRevision(bareSeat), "=", 0),
	}
	var ops []clientv3.Op
	for _, b := range chunk {
		conds = append(conds, clientv3.Compare(clientv3.ModRevision(b.key), "=", b.rev))
		ops = append(ops, clientv3.OpPut(b.key, string(cluster.Encode(b.next))))
	}
	return c.client.Txn(ctx).If(conds...).Then(ops...)
}
