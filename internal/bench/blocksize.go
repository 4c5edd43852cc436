package main

import (
	"context"
	"fmt"
)

var blockSizeRow = row{
	name: "blocksize",
	what: `
What a block of 1, 8, 16, 32 and 64 records costs and brings, for 10,000 partitions of 3 replicas on 5 brokers: the loss of a
broker, as in brokerloss, as records a second until the last one is committed; and one AlterPartition alone, the mean of 100
in a row. Bare: as in brokerloss and in alter, with blocks of the same size.`,
	run: blockSizes,
}

func blockSizes(ctx context.Context, b *bench) ([]figure, error) {
	var figures []figure
	for _, size := range []int{1, 8, 16, 32, 64} {
		some, err := blockSize(ctx, b, size)
		if err != nil {
			return nil, fmt.Errorf("blocks of %d: %w", size, err)
		}
		figures = append(figures, some...)
	}
	return figures, nil
}

func blockSize(ctx context.Context, b *bench, size int) ([]figure, error) {
	c := lossCase{brokers: 5, topics: 10, partitions: b.scaled(1000, 1), blockSize: size}
	w, outside, err := newLossWorld(ctx, b, c)
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer outside.close()
	one, err := w.flipSeries(ctx, 1)
	if err != nil {
		return nil, err
	}
	ours, err := w.lossSeries(ctx, outside)
	if err != nil {
		return nil, err
	}
	bare, err := w.bareLoss(ctx, outside, bareWay{perKey: wholeBlocks, perTxn: blocksPerTxn, inFlight: inFlight})
	if err != nil {
		return nil, err
	}
	blocks, err := w.copyBlocks(ctx, wholeBlocks)
	if err != nil {
		return nil, err
	}
	bareOne, err := w.bareFlips(ctx, blocks[:1])
	if err != nil {
		return nil, err
	}
	lost := c.topics * c.partitions * 3 / c.brokers // with a replica on the broker
	return []figure{
		{what: fmt.Sprintf("%d: records of a loss", size), unit: perSecond, ours: rates(lost, ours[0]), bare: rates(lost, bare)},
		{what: fmt.Sprintf("%d: one change", size), ours: perChange(one), bare: perChange(bareOne)},
	}, nil
}
