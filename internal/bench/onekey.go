package main

import "context"

var oneKeyRow = row{
	name: "onekey",
	what: `
The loss of one of 5 brokers, as in brokerloss, beside what a controller does that keeps each partition under a key of its
own: one write at a time, or 16 at a time. That the second replaced the first was what made Kafka's controller many times
faster in version 1.1. Bare: from the same signal, a client changes, encodes and puts the same 6,000 records, each in a
transaction with the same conditions.`,
	run: oneKey,
}

func oneKey(ctx context.Context, b *bench) ([]figure, error) {
	w, outside, err := newLossWorld(ctx, b, lossCase{brokers: 5, topics: 10, partitions: b.scaled(1000, 1)})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer outside.close()
	ours, err := w.lossSeries(ctx, outside)
	if err != nil {
		return nil, err
	}
	figures := []figure{}
	for _, way := range []struct {
		what string
		bareWay
	}{
		{"bare: one key a transaction, 16 in flight", bareWay{perKey: 1, perTxn: 1, inFlight: inFlight}},
		{"bare: one key a transaction, one in flight", bareWay{perKey: 1, perTxn: 1, inFlight: 1}},
	} {
		bare, err := w.bareLoss(ctx, outside, way.bareWay)
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{what: way.what, ours: ours[0], bare: bare})
	}
	return figures, nil
}
