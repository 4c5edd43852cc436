// Package dev is a whole cluster in one process, for "controllerd dev": etcd,
// daemons, brokers on the SDK, and somebody who kills them.
//
// It owns everything that it starts. Daemons and brokers talk over real gRPC on
// loopback, and a killed one vanishes as a killed process would. An account
// watches from outside, by an etcd watch of its own and by what brokers
// accept: it tells what happens, and checks the invariants of package sim.
package dev
