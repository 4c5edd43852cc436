package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// lookAgain is the least pause between two looks at whether something has come
// true.
const lookAgain = 50 * time.Millisecond

// addWait gives a command the flag --wait.
func addWait(f *pflag.FlagSet, wait *bool, byDefault bool, until string) {
	f.BoolVar(wait, "wait", byDefault, "end only when "+until+"; exit code 4 if --timeout is over before")
}

// unfinished is something that was done and has not come true in time.
type unfinished struct {
	done string // what was done
	left string // what is missing
}

func (e unfinished) Error() string { return e.done + ", but in time: " + e.left }

// outlook is how far something has come that is waited for.
type outlook struct {
	done, whole int64
	left        string // what is missing; empty: nothing
}

// await looks until nothing is missing, or the time is over: then what was done
// is reported as unfinished. Daemons that do not answer are asked again.
func await(ctx context.Context, cmd *cobra.Command, c *client, done string, look func(context.Context, pb.AdminServiceClient) (outlook, error)) error {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.end()
	last := outlook{left: "nobody has said so"}
	end, _ := ctx.Deadline()
	for {
		began := time.Now()
		now, err := ask(ctx, c, repeatable, look)
		switch {
		case cmd.Context().Err() != nil:
			return errInterrupted
		case err == nil && now.left == "":
			return nil
		case err == nil:
			last = now
		case time.Until(end) > lookAgain: // else it was cut short, and the last one says more
			last.left = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		bar.update(last.done, last.whole, last.left)
		select {
		case <-ctx.Done():
			if cmd.Context().Err() != nil {
				return errInterrupted
			}
			return unfinished{done, last.left}
		case <-time.After(max(lookAgain, time.Since(began))): // at most half of the time is spent on looks
		}
	}
}

// topicServed looks whether all partitions of a topic have leaders, and all
// live brokers have confirmed their replicas.
func topicServed(name string, id []byte) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		v, err := describeTopic(ctx, admin, name, nil)
		if err != nil {
			return outlook{}, err
		}
		if v.Topic.TopicID != topicID(id) {
			return outlook{left: "another topic has that name by now"}, nil
		}
		return servedOf(v), nil
	}
}

func servedOf(v *topicDetailView) outlook {
	var o outlook
	var missing []string
	say := func(n int64, format string, args ...any) {
		if n > 0 {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	led := int64(0)
	for _, p := range v.Partitions {
		o.whole += int64(len(p.Replicas))
		if p.Leader != int32(cluster.NoLeader) {
			led++
		}
	}
	o.done = o.whole
	say(int64(v.PartitionsWanted)-led, "%d partitions have no leader", int64(v.PartitionsWanted)-led)
	for _, u := range v.Unconfirmed {
		o.done -= int64(u.Replicas)
		say(int64(u.Replicas), "broker %d has yet to confirm %d replicas", u.Broker, u.Replicas)
	}
	if !v.FromActive {
		missing = append(missing, "no active controller answers")
	}
	o.left = strings.Join(missing, ", ")
	return o
}

// topicsConfirmed looks whether all live brokers have confirmed what topics were
// at a revision.
func topicsConfirmed(names []string, revision int64) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		o := outlook{whole: int64(len(names))}
		var missing []string
		for _, name := range names {
			v, err := describeTopic(ctx, admin, name, nil)
			switch {
			case err != nil:
				return outlook{}, err
			case v.Revision < revision || !v.FromActive:
				return outlook{left: "the daemon that answers has not seen it yet, or does not know"}, nil
			case len(v.Unconfirmed) == 0:
				o.done++
			}
			for _, u := range v.Unconfirmed {
				missing = append(missing, fmt.Sprintf("broker %d has yet to confirm %d replicas of %s", u.Broker, u.Replicas, name))
			}
		}
		o.left = strings.Join(missing, ", ")
		return o, nil
	}
}

// topicsErased looks whether every broker has confirmed that it holds nothing
// of topics that were deleted at a revision.
func topicsErased(ids [][]byte, revision int64) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	most := int64(0) // brokers, of all topics
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		left := int64(0)
		var missing []string
		for some := range slices.Chunk(ids, idsAtOnce) {
			page, err := admin.ListTombstones(ctx, &pb.ListTombstonesRequest{TopicIds: some})
			if err != nil {
				return outlook{}, err
			}
			if page.GetRevision() < revision {
				return outlook{left: "the daemon that answers has not seen it yet"}, nil
			}
			for _, t := range page.GetTombstones() {
				left += int64(len(t.GetBrokers()))
				missing = append(missing, fmt.Sprintf("brokers %s may still hold replicas of %s", join(t.GetBrokers()), t.GetTopic()))
			}
		}
		most = max(most, left)
		return outlook{most - left, most, strings.Join(missing, ", ")}, nil
	}
}

// idsAtOnce is how many topics a daemon is asked for by id.
const idsAtOnce = 1000

// termAfter looks whether a term after that of an epoch has begun, and notes
// its controller.
func termAfter(ended int64, next *pb.DescribeControllerResponse) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		now, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
		if err != nil {
			return outlook{}, err
		}
		if now.GetEpoch() <= ended || now.GetControllerId() == "" {
			return outlook{left: "nobody follows yet"}, nil
		}
		next.Epoch, next.ControllerId = now.GetEpoch(), now.GetControllerId()
		return outlook{}, nil
	}
}

// within is the time that a command has in all.
func (c *client) within(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(cmd.Context(), max(c.timeout, 0))
}

// isUnfinished reports whether an error says no worse than that.
func isUnfinished(err error) bool { return errors.As(err, new(unfinished)) }
