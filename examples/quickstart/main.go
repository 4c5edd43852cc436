// Command quickstart is the smallest broker: it says what it leads. Run it
// beside "make run".
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
)

const me = 7

// store is where your system opens, serves and closes its partitions.
type store struct{}

// ApplyPartition runs once for each leader epoch, for one partition after the other.
func (store) ApplyPartition(_ context.Context, p broker.PartitionState) error {
	if p.Leader == me {
		fmt.Printf("leading %s-%d in leader epoch %d, in sync: %v\n", p.Topic, p.Partition.Index, p.LeaderEpoch, p.ISR)
	} else {
		fmt.Printf("following broker %d for %s-%d\n", p.Leader, p.Topic, p.Partition.Index)
	}
	return nil
}

// StopReplica ends that; the data goes only if deleteData says so.
func (store) StopReplica(_ context.Context, topic string, id cluster.PartitionID, deleteData bool) error {
	fmt.Printf("stopping %s-%d, delete: %v\n", topic, id.Index, deleteData)
	return nil
}

func (store) AdoptISR(broker.PartitionState)       {} // within the same leader epoch
func (store) UpdateMetadata(broker.MetadataUpdate) {} // who leads what elsewhere, for your clients

func main() {
	daemon := flag.String("daemon", "127.0.0.1:7070", "any one of them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := broker.Run(ctx, broker.Config{
		ID:       me,
		NodeUUID: "a4c1f0de-quickstart", // of the disks: it outlives the process
		Daemons:  []string{*daemon},
		Handler:  store{},
	})
	if err != nil {
		log.Fatal(err)
	}
}
