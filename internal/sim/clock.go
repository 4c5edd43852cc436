package sim

import (
	"container/heap"
	"time"
)

// clock is virtual time: a queue of what will happen.
type clock struct {
	now   time.Duration
	queue events
	count int64
	steps int
}

type event struct {
	at time.Duration
	n  int64 // events of one moment happen in the order in which they were set
	fn func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}

// after lets fn happen in a while.
func (c *clock) after(d time.Duration, fn func()) {
	c.count++
	heap.Push(&c.queue, event{c.now + max(d, 0), c.count, fn})
}

// step lets the next thing happen.
func (c *clock) step() {
	e := heap.Pop(&c.queue).(event)
	c.now = e.at
	c.steps++
	e.fn()
}

// lane keeps the order of what goes one way.
type lane struct {
	last time.Duration
	fns  []func() // in a process: what is to happen, in order
}

// next is how long something that would take d has to take so that it does not
// overtake what went before.
func (l *lane) next(now, d time.Duration) time.Duration {
	l.last = max(l.last, now+d)
	return l.last - now
}

// first lets happen what is to happen first.
func (l *lane) first() {
	fn := l.fns[0]
	l.fns = l.fns[1:]
	fn()
}

// process is what can be killed and frozen.
type process struct {
	w      *World
	name   string // of this incarnation
	dead   bool
	frozen bool
	parked []func()
}

// after lets fn happen in the process in a while: never if it is dead by then,
// after the thaw if it is frozen. What shares a lane keeps its order.
func (p *process) after(d time.Duration, l *lane, fn func()) {
	if l != nil {
		d = l.next(p.w.now, d)
		l.fns = append(l.fns, fn)
		fn = l.first
	}
	p.later(d, fn)
}

func (p *process) later(d time.Duration, fn func()) {
	p.w.after(d, func() {
		switch {
		case p.dead:
		case p.frozen:
			p.parked = append(p.parked, fn)
		default:
			fn()
		}
	})
}

// runs reports whether the process does anything at the moment.
func (p *process) runs() bool { return !p.dead && !p.frozen }

// thaw lets what was missed happen, in any order but that of the lanes.
func (p *process) thaw() {
	p.frozen = false
	missed := p.parked
	p.parked = nil
	for _, fn := range missed {
		p.later(p.w.upTo(3*time.Millisecond), fn)
	}
}
