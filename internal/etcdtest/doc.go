// Package etcdtest gives tests a real etcd on loopback, and faults between it
// and its clients.
//
// A Cluster has one member with fast ticks, so it is ready in about 0.1 s and
// grants leases of one second. Faults breaks single calls in the client;
// package netproxy breaks connections.
package etcdtest
