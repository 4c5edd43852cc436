package rpc

import (
	"context"
	"errors"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// maxWatched is how many topics a client may name.
const maxWatched = 1000

// metadataService is what clients of the brokers call. A stream is a place in
// the Feed: the owner is asked for one response at a time, and what the client
// does not read costs nothing.
type metadataService struct {
	pb.UnimplementedMetadataServiceServer
	core Core
}

func (s *metadataService) WatchMetadata(r *pb.WatchMetadataRequest, stream pb.MetadataService_WatchMetadataServer) error {
	reader, err := newReader(r)
	if err != nil {
		return err
	}
	resp, err := s.first(stream.Context(), r, reader)
	for err == nil {
		if err = stream.Send(resp); err == nil {
			resp, err = s.next(stream.Context(), r, reader)
		}
	}
	return err
}

// first waits until the image is as new as the client is, but not for long: a
// daemon that is behind is no use to it.
func (s *metadataService) first(ctx context.Context, r *pb.WatchMetadataRequest, reader *reader) (*pb.WatchMetadataResponse, error) {
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	resp, err := s.next(limited, r, reader)
	if errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil && resp == nil && ReasonOf(err) == "" {
		return nil, Error(cluster.RequestTimedOut, nil, "this daemon has not seen revision %d", max(r.GetRevision(), 1))
	}
	return resp, err
}

func (s *metadataService) next(ctx context.Context, r *pb.WatchMetadataRequest, reader *reader) (resp *pb.WatchMetadataResponse, err error) {
	first := !reader.began
	var refused error
	if err := s.core.Await(ctx, func(v View) bool {
		if v.Image.Rev == 0 || v.ClusterUUID == "" {
			return false // it is about to know
		}
		if refused = checkCluster(v, r.GetClusterUuid()); refused != nil {
			return true
		}
		if resp = reader.next(v.Image, v.Feed); resp != nil && first {
			resp.ClusterUuid = v.ClusterUUID
		}
		return resp != nil
	}); err != nil {
		return nil, unavailable(err)
	}
	return resp, refused
}

func newReader(r *pb.WatchMetadataRequest) (*reader, error) {
	out := &reader{from: store.Rev(r.GetRevision()), details: r.GetDetails()}
	switch {
	case r.GetRevision() < 0:
		return nil, bad("revision %d is negative", r.GetRevision())
	case len(r.GetTopics()) > maxWatched:
		return nil, bad("%d topics, want at most %d", len(r.GetTopics()), maxWatched)
	case len(r.GetTopics()) == 0:
		return out, nil
	}
	out.topics = map[string]bool{}
	for _, name := range r.GetTopics() {
		if err := cluster.ValidateTopicName(name); err != nil {
			return nil, Error(cluster.InvalidTopicException, nil, "%v", err)
		}
		if out.topics[name] {
			return nil, bad("topic %q is named twice", name)
		}
		out.topics[name] = true
	}
	return out, nil
}
