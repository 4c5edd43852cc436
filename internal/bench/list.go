package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// listPage is how many keys are asked for at once, as the daemon does.
const listPage = 10_000

// printList is the whole of a process that lists all blocks of partitions and
// decodes them. It prints when that was done, and how many records there are.
func printList(ctx context.Context, addr string) error {
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{addr}})
	if err != nil {
		return err
	}
	defer client.Close()
	var blocks []*pb.PartitionBlock // kept, as an image would
	records, rev, from := 0, int64(0), cluster.KeysOf(clusterName).Prefix()+"partitions/"
	for end := clientv3.GetPrefixRangeEnd(from); ; {
		page, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(rev))
		if err != nil {
			return err
		}
		if rev == 0 { // all pages are of one revision
			rev = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			b := &pb.PartitionBlock{}
			if err := proto.Unmarshal(kv.Value, b); err != nil {
				return err
			}
			blocks = append(blocks, b)
			records += len(b.GetPartitions())
		}
		if !page.More {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	fmt.Println(time.Now().UnixNano(), records, len(blocks))
	return nil
}
