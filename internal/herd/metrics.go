package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// cost is what an etcd has done for its clients.
type cost struct {
	Requests float64 // unary calls, and watches that were begun or ended
	Events   float64 // events of watches that were sent
}

func (c cost) minus(d cost) cost { return cost{c.Requests - d.Requests, c.Events - d.Events} }

// read reads the cost so far from the metrics of the etcd at an endpoint.
func read(ctx context.Context, endpoint string) (c cost, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/metrics", nil)
	if err != nil {
		return c, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return c, fmt.Errorf("metrics of etcd: %s", resp.Status)
	}
	dec := expfmt.NewDecoder(resp.Body, expfmt.NewFormat(expfmt.TypeTextPlain))
	for found := 0; ; {
		var f dto.MetricFamily
		if err := dec.Decode(&f); errors.Is(err, io.EOF) {
			if found < 3 {
				return c, errors.New("metrics of etcd lack what is to be counted")
			}
			return c, nil
		} else if err != nil {
			return c, fmt.Errorf("metrics of etcd: %w", err)
		}
		found += c.add(&f)
	}
}

// add takes in one family of metrics, and reports how many that were (0 or 1).
func (c *cost) add(f *dto.MetricFamily) int {
	var to *float64
	counts := func(map[string]string) bool { return true }
	switch f.GetName() {
	case "grpc_server_started_total":
		to = &c.Requests
		counts = func(label map[string]string) bool {
			return label["grpc_type"] == "unary" && label["grpc_method"] != "LeaseRevoke" // by which the node dies
		}
	case "grpc_server_msg_received_total":
		to = &c.Requests
		counts = func(label map[string]string) bool { return label["grpc_method"] == "Watch" }
	case "etcd_debugging_mvcc_events_total":
		to = &c.Events
	default:
		return 0
	}
	for _, m := range f.GetMetric() {
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		if counts(label) {
			*to += m.GetCounter().GetValue()
		}
	}
	return 1
}

// calm is for how long nothing must happen until what has happened is over.
const calm = 200 * time.Millisecond

// settled is the cost when etcd has nothing to do any more.
func settled(ctx context.Context, endpoint string) (cost, error) {
	last, err := read(ctx, endpoint)
	for err == nil {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(calm):
		}
		var now cost
		if now, err = read(ctx, endpoint); now == last {
			break
		}
		last = now
	}
	return last, err
}
