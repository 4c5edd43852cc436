package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// maxRequest bounds a data request, in bytes.
const maxRequest = 1 << 20

// dataListener has the shape of a listener of a Kafka broker: each connection
// has one request at a time in a bounded queue, from which a bounded number of
// handlers takes. While all handlers are busy and the queue is full nothing
// more is read: clients wait. Commands must never wait with them, which is why
// they have a listener of their own.
//
// A request is four bytes of length, most significant first, and as many
// bytes; a response is the same.
type dataListener struct {
	l      net.Listener
	queue  chan *dataRequest
	handle func(ctx context.Context, request []byte) []byte
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// dataRequest is one in the queue. Its handler closes done.
type dataRequest struct {
	body, response []byte
	done           chan struct{}
}

// dataConfig describes a data listener.
type dataConfig struct {
	listen   string
	handlers int           // at work at the same time
	queue    int           // requests that wait for one
	delay    time.Duration // how long a request takes
}

// echo answers each request with itself after the delay: there are no data.
func (c dataConfig) echo(ctx context.Context, request []byte) []byte {
	if c.delay > 0 {
		select {
		case <-time.After(c.delay):
		case <-ctx.Done():
		}
	}
	return request
}

// listenForData serves until close.
func listenForData(cfg dataConfig, handle func(context.Context, []byte) []byte) (*dataListener, error) {
	l, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return nil, fmt.Errorf("listen for data: %w", err)
	}
	d := &dataListener{l: l, queue: make(chan *dataRequest, cfg.queue), handle: handle, conns: map[net.Conn]struct{}{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	for range cfg.handlers {
		d.wg.Go(d.work)
	}
	d.wg.Go(d.accept)
	return d, nil
}

func (d *dataListener) addr() string { return d.l.Addr().String() }

// close ends everything, and returns when the handlers have returned.
func (d *dataListener) close() error {
	d.cancel()
	err := d.l.Close()
	d.mu.Lock()
	d.closed = true
	for conn := range d.conns {
		err = errors.Join(err, conn.Close())
	}
	d.mu.Unlock()
	d.wg.Wait()
	return err
}

func (d *dataListener) accept() {
	for {
		conn, err := d.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files, perhaps
			select {
			case <-time.After(100 * time.Millisecond):
			case <-d.ctx.Done():
				return
			}
			continue
		}
		if d.keep(conn) {
			d.wg.Go(func() {
				defer d.drop(conn)
				_ = d.serve(conn) // the client is gone, or talks nonsense
			})
		}
	}
}

func (d *dataListener) keep(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = conn.Close()
		return false
	}
	d.conns[conn] = struct{}{}
	return true
}

func (d *dataListener) drop(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.conns[conn]; ok && !d.closed {
		delete(d.conns, conn)
		_ = conn.Close()
	}
}

// serve reads the requests of one connection and writes the responses.
func (d *dataListener) serve(conn net.Conn) error {
	for {
		body, err := readFrame(conn)
		if err != nil {
			return err
		}
		r := &dataRequest{body: body, done: make(chan struct{})}
		if err := d.submit(d.ctx, r); err != nil {
			return err
		}
		if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(len(r.response)))); err != nil {
			return err
		}
		if _, err := conn.Write(r.response); err != nil {
			return err
		}
	}
}

// submit waits for room in the queue, and then for a handler to be done.
func (d *dataListener) submit(ctx context.Context, r *dataRequest) error {
	select {
	case d.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *dataListener) work() {
	for {
		select {
		case r := <-d.queue:
			r.response = d.handle(d.ctx, r.body)
			close(r.done)
		case <-d.ctx.Done():
			return
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxRequest {
		return nil, fmt.Errorf("request of %d bytes, want at most %d", n, maxRequest)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}
