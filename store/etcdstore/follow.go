package etcdstore

import (
	"context"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// followFirst is the first pause between two looks at the members, which
	// doubles up to followInterval: members start together, and are replaced by
	// hand.
	followFirst    = time.Second
	followInterval = 10 * time.Second
	// followTimeout bounds one look at the members, and at each of them.
	followTimeout = 3 * time.Second
)

// Follow lets a client that Dial made use other members of its cluster than it
// was given, until ctx ends: those that the cluster lists, at the addresses that
// they tell clients, looked up every 10 s. Such an address is used once it was
// seen that the same cluster answers there, because members often tell one that
// only they can reach, such as localhost. If the client's connections are
// secured, only addresses that are so too are used, otherwise only plain ones.
// The endpoints that the client was given are always kept; one that is dead
// costs nothing. fn hears which others are used, when that changes.
func Follow(ctx context.Context, client *clientv3.Client, secured bool, fn func(found []string)) {
	f := follower{client: client, scheme: "http", given: client.Endpoints(), fn: fn}
	if secured {
		f.scheme = "https"
	}
	for pause := followFirst; ; pause = min(2*pause, followInterval) {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// follower knows which endpoints a client was given, and which it has found.
type follower struct {
	client *clientv3.Client
	scheme string
	given  []string
	found  []string
	fn     func([]string)
}

// look asks for the members.
func (f *follower) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	resp, err := f.client.MemberList(limited)
	if err != nil {
		return
	}
	var found []string
	for _, m := range resp.Members {
		for _, u := range m.ClientURLs {
			if !m.IsLearner && f.wants(u) && (slices.Contains(f.found, u) || f.answers(ctx, u, resp.Header.ClusterId)) {
				found = append(found, u)
			}
		}
	}
	if ctx.Err() == nil && !slices.Equal(found, f.found) {
		f.found = found
		f.client.SetEndpoints(slices.Concat(f.given, found)...)
		f.fn(slices.Clone(found))
	}
}

// wants reports whether an endpoint may be used and was not given.
func (f *follower) wants(endpoint string) bool {
	scheme, address := split(endpoint)
	return scheme == f.scheme && !slices.ContainsFunc(f.given, func(g string) bool {
		_, a := split(g)
		return a == address
	})
}

// split is an endpoint as scheme and address.
func split(endpoint string) (scheme, address string) {
	scheme, address, ok := strings.Cut(endpoint, "://")
	if !ok {
		scheme, address = "", endpoint
	}
	return scheme, strings.TrimSuffix(address, "/")
}

// answers reports whether a member of the cluster answers at an endpoint.
func (f *follower) answers(ctx context.Context, endpoint string, cluster uint64) bool {
	limited, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	resp, err := f.client.Status(limited, endpoint)
	return err == nil && resp.Header.ClusterId == cluster
}
