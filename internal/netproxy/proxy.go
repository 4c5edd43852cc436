package netproxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// window is how many reads may wait for their latency in one direction of a
// connection; more hold the sender back.
const window = 1024

// Proxy forwards connections to a target. Its methods are safe for concurrent
// use.
type Proxy struct {
	target string
	listen net.Listener
	done   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	open    map[net.Conn]bool
	healed  chan struct{} // closed while data passes
	latency time.Duration // of each direction
	refuse  bool
	dials   int
}

// Start listens on a free port of loopback.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for proxy of %s: %w", target, err)
	}
	p := &Proxy{
		target: target,
		listen: l,
		done:   make(chan struct{}),
		open:   map[net.Conn]bool{},
		healed: make(chan struct{}),
	}
	close(p.healed)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the address to dial instead of the target's.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Dials is how many connections were made to the proxy.
func (p *Proxy) Dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// Open is how many connections there are to the target.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) / 2 // each has two ends
}

// Blackhole holds all data back, in both directions and on new connections
// too. Nobody sees a connection break.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
		p.healed = make(chan struct{})
	default:
	}
}

// Heal lets data and new connections pass again. What was held back arrives,
// as after a route came back.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	select {
	case <-p.healed:
	default:
		close(p.healed)
	}
}

// Reset breaks all connections; both ends see it at once. New ones pass.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		reset(c)
	}
}

// Refuse breaks all connections, and new ones as soon as they are made, until
// Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Reset()
}

// SetLatency delays the data of each direction, without limiting its rate.
func (p *Proxy) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Close breaks all connections and stops listening.
func (p *Proxy) Close() error {
	close(p.done)
	err := p.listen.Close()
	p.Reset()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.mu.Lock()
			p.dials++
			p.mu.Unlock()
			p.wg.Go(func() { p.serve(c) })
		}
	}
}

// serve carries one connection until either end closes it or it is reset. A
// side that is held back keeps its peer unaware of the other's end.
func (p *Proxy) serve(client net.Conn) {
	if !p.add(client) {
		return
	}
	defer p.drop(client)
	if !p.pass() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.carry(client, server) })
	both.Go(func() { p.carry(server, client) })
	both.Wait()
}

// add makes a connection known, or breaks it if connections are refused.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		p.refuse = true
	default:
	}
	if p.refuse {
		reset(c)
		return false
	}
	p.open[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	reset(c)
}

// reset closes a connection so that the peer sees a break, not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// chunk is data that arrives at a time; nil is the end.
type chunk struct {
	due  time.Time
	data []byte
}

// carry copies one direction. Reading and writing are apart, so that latency
// does not limit the rate.
func (p *Proxy) carry(from, to net.Conn) {
	chunks := make(chan chunk, window)
	var reading sync.WaitGroup
	reading.Go(func() { p.read(from, chunks) })
	for c := range chunks {
		if !p.wait(c.due) || !p.pass() || !write(to, c.data) {
			reset(from) // which ends the reading
			reset(to)
			break
		}
	}
	for range chunks {
	}
	reading.Wait()
}

// write sends data, or passes the end of it on.
func write(to net.Conn, data []byte) bool {
	if data == nil {
		tcp, ok := to.(*net.TCPConn)
		return ok && tcp.CloseWrite() == nil
	}
	_, err := to.Write(data)
	return err == nil
}

func (p *Proxy) read(from net.Conn, chunks chan<- chunk) {
	defer close(chunks)
	for {
		data := make([]byte, 32<<10)
		n, err := from.Read(data)
		p.mu.Lock()
		due := time.Now().Add(p.latency)
		p.mu.Unlock()
		if n > 0 {
			chunks <- chunk{due, data[:n]}
		}
		if err != nil {
			chunks <- chunk{due, nil}
			return
		}
	}
}

// wait returns at a time, or false when the proxy is closed before.
func (p *Proxy) wait(until time.Time) bool {
	d := time.Until(until)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done:
		return false
	}
}

// pass returns when data may pass, or false when the proxy is closed.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	healed := p.healed
	p.mu.Unlock()
	select {
	case <-healed:
		return true
	case <-p.done:
		return false
	}
}
