// Package controllerdv1 is the wire: the services of daemons and brokers, and
// the records stored in etcd. Everything but this file is generated.
package controllerdv1
