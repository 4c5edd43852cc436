package sim

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// maxShown is how many partitions of a block a line of the trace shows.
const maxShown = 4

// changeText is a change of a key for the trace.
func (w *World) changeText(c store.Change) string {
	key := strings.TrimPrefix(c.KV.Key, w.keys.Prefix())
	if c.Deleted {
		return "delete " + key
	}
	return key + w.valueText(key, c.KV.Value)
}

// txnText is what a transaction is about.
func (w *World) txnText(t store.Txn) string {
	var out []string
	for _, op := range t.Then {
		key := strings.TrimPrefix(op.Key, w.keys.Prefix())
		if op.Kind == store.OpDelete {
			key = "-" + key
		}
		out = append(out, key)
	}
	if n := len(out) - maxShown; n > 0 {
		out = append(out[:maxShown], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, " ")
}

func (w *World) valueText(key string, value []byte) string {
	dir, _, _ := strings.Cut(key, "/")
	switch dir {
	case "controller":
		var r pb.ControllerRecord
		if proto.Unmarshal(value, &r) == nil {
			return " of " + r.GetNonce()
		}
	case "controller_epoch":
		var r pb.EpochRecord
		if proto.Unmarshal(value, &r) == nil {
			return fmt.Sprintf(" %d", r.GetEpoch())
		}
	case "partitions":
		var b pb.PartitionBlock
		if proto.Unmarshal(value, &b) == nil {
			return blockText(&b)
		}
	}
	return ""
}

func blockText(b *pb.PartitionBlock) string {
	var out strings.Builder
	for i, r := range b.GetPartitions() {
		if i == maxShown {
			fmt.Fprintf(&out, " and %d more", len(b.GetPartitions())-maxShown)
			break
		}
		fmt.Fprintf(&out, " %d of %v %s", r.GetPartition(), r.GetReplicas(), recordText(r))
	}
	return out.String()
}

// topicName is how topics are called, in order of creation.
func topicName(n int) string { return fmt.Sprintf("t%d", n) }

// partitionsOf are all partitions that the image shows, in order.
func partitionsOf(im *cluster.Image) []cluster.PartitionID {
	var out []cluster.PartitionID
	for _, t := range im.SortedTopics() {
		im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
			if p != nil {
				out = append(out, id)
			}
		})
	}
	return out
}
