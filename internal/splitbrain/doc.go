// Command splitbrain is the witness of scripts/split-brain.sh: it stands
// between the daemons and etcd and between the daemons and the brokers, holds
// back one write and one command of the old active, and tells at the end who
// changed what in etcd and whom the brokers obeyed.
//
// It owns the relays, a watch of its own, and what they have seen. It changes
// nothing that passes and makes nothing up. The script asks it by lines on
// standard input, one at a time, and each is answered by one line on standard
// output, "ok" or "failed" and a text, except that a verdict writes its account
// to standard error. It ends with its standard input.
package main
