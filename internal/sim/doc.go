// Package sim is the seeded simulation of a whole cluster, and the invariants
// that hold in every run.
//
// It owns the Checker, which is told what etcd and the brokers did and finds
// what must never happen, and the World: daemons, brokers, an etcd and a bad
// network between them, in virtual time and in one goroutine. The daemons are
// controller.Loop, the brokers' gates fencing.Gate, etcd is memstore.Model: the
// code that ships, under another interpreter. One seed is one run, to the last
// message.
//
// The Checker does not need the simulation: any run that can tell it the same
// facts is checked by it. It does not promise to find what no broker and no key
// shows, and it trusts what it is told.
package sim
