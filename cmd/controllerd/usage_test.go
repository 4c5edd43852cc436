package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/rpc"
)

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"bogus", `unknown command "bogus" for "controllerd"`},
		{"contoller", `unknown command "contoller" for "controllerd", did you mean controller?`},
		{"topic bogus", `unknown command "bogus" for "controllerd topic"`},
		{"topic bogus --partitions 3", `unknown command "bogus" for "controllerd topic"`},
		{"controller bogus", `unknown command "bogus" for "controllerd controller"`},
		{"completion bogus", `unknown command "bogus" for "controllerd completion"`},
		{"help bogus", `unknown command "bogus" for "controllerd"`},
		{"help topic bogus", `unknown command "bogus" for "controllerd topic"`},
		{"--bogus", "unknown flag: --bogus"},
		{"topic list --bogus", "unknown flag: --bogus"},
		{"doctor bogus", `unknown check "bogus"`},
		{"doctor --latency 0s", "--latency is 0s, want more than 0"},
		{"doctor --history 0", "--history is 0, want 1 to "},
		{"doctor --history 922337203685477581", "--history is 922337203685477581, want 1 to "},
		{"topic list -x", "unknown shorthand flag: 'x' in -x"},
		{"version --server 127.0.0.1:1", "unknown flag: --server"},
		{"topic list extra", `unexpected argument "extra" for "controllerd topic list"`},
		{"topic describe", "accepts 1 arg(s), received 0"},
		{"topic describe a b", "accepts 1 arg(s), received 2"},
		{"topic create --partitions 1 --replication-factor 1", "requires at least 1 arg(s), only received 0"},
		{"topic create a", `required flag(s) "partitions", "replication-factor" not set`},
		{"topic create a --partitions x --replication-factor 1", `invalid argument "x" for "--partitions" flag`},
		{"topic create a --partitions 2147483648 --replication-factor 1", `invalid argument "2147483648" for "--partitions" flag`},
		{"topic create a --partitions 1 --replication-factor 1 --config k", `config "k" is not name=value`},
		{"topic create a --partitions 1 --replication-factor 1 --config k=1 --config k=2", `config "k" is given twice`},
		{"topic create a\xff --partitions 1 --replication-factor 1", `argument "a\xff" is not UTF-8`},
		{"topic describe a\xff", `argument "a\xff" is not UTF-8`},
		{"controller resign --reason a\xff", `argument "a\xff" is not UTF-8`},
		{"topic list -o xml", `invalid argument "xml" for "-o, --output" flag: want one of table, json, yaml`},
		{"version -o xml", `invalid argument "xml" for "-o, --output" flag: want one of table, json, yaml`},
		{"topic list --timeout 5", `invalid argument "5" for "--timeout" flag`},
		{"topic list --timeout 0s", "timeout 0s is not positive"},
		{"topic list --server localhost", `server "localhost" is not host:port`},
		{"topic list --server=", "no server given"},
		{"serve extra", `unexpected argument "extra" for "controllerd serve"`},
		{"serve --lease-ttl 5", `flag --lease-ttl: time: missing unit in duration "5"`},
	} {
		r := cli(strings.Fields(tt.args)...).want(t, exitUsage)
		first, hint, _ := strings.Cut(r.stderr, "\n")
		if !strings.HasPrefix(first, "Error: "+tt.want) || !strings.HasPrefix(hint, "Run 'controllerd") || r.stdout != "" {
			t.Errorf("%q\nstdout: %s\nstderr: %s\nwant:   %s", tt.args, r.stdout, r.stderr, tt.want)
		}
	}
}

// TestServeFaults: all faults of the flags are named at once, before anything
// is listened to or written.
func TestServeFaults(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"--cluster No_Good --lease-ttl 1999ms --etcd-endpoints= --listen nowhere --advertise me", []string{
			`listen address "nowhere" is not host:port`, `advertised address "me" is not host:port`, "no endpoints of etcd given",
			`cluster name "No_Good": want 1 to 63 of a-z, 0-9 and -, not starting with -`, "lease TTL 1.999s is below 2s",
		}},
		{"--etcd-endpoints 127.0.0.1:1,,127.0.0.1:2 --lease-ttl 0s", []string{"lease TTL is 0", "endpoint 2 of etcd is empty"}},
		{"--etcd-endpoints http://me:secret@127.0.0.1:1 --lease-ttl -5s", []string{
			"endpoint 1 of etcd has a user name in it, which etcd ignores", "lease TTL -5s is below 2s",
		}},
		{"--id a\xff", []string{`id "a\xff": want 1 to 255 of letters, digits, '.', '_' and '-'`}},
		{"--max-partitions-per-topic -1 --max-partitions-per-request -2 --max-partitions -3", []string{
			"limit of partitions of a topic is -1, want 0 or more", "limit of partitions of a request is -2, want 0 or more",
			"limit of partitions of a cluster is -3, want 0 or more",
		}},
		{"--embedded-etcd /nowhere --etcd-endpoints 127.0.0.1:1 --etcd-cacert ca --embedded-etcd-quota 1MiB --embedded-etcd-listen-client localhost:1" +
			" --embedded-etcd-listen-peer :1 --embedded-etcd-join --embedded-etcd-advertise-client 10.0.0.1 --lease-ttl 1s", []string{
			"certificates for etcd: open ca: no such file or directory",
			"--etcd-endpoints and --embedded-etcd: the daemon uses one etcd or the other",
			"--embedded-etcd needs all of --etcd-cacert, --etcd-cert and --etcd-key, or none",
			"--embedded-etcd-quota 1MiB is below 16MiB",
			`--embedded-etcd-listen-client "localhost:1" is not an IP address and a port`,
			`--embedded-etcd-listen-peer ":1" is not an IP address and a port`,
			`--embedded-etcd-advertise-client "10.0.0.1" is not host:port`,
			"--embedded-etcd-listen-peer is of no use without --embedded-etcd-peers",
			"--embedded-etcd-join is of no use without --embedded-etcd-peers",
			"lease TTL 1s is below 2s",
		}},
		{"--embedded-etcd /nowhere --id a --embedded-etcd-peers b=http://10.0.0.2:2380,b=http://10.0.0.3:2380,c=http://10.0.0.2:2380,10.0.0.4:2380,d=https://10.0.0.5:2380,e=http://me:secret@10.0.0.6:2380", []string{
			`--embedded-etcd-peers names "b" twice`, "--embedded-etcd-peers names 10.0.0.2:2380 twice",
			`--embedded-etcd-peers: peer 4 is not id=http://host:port`,
			`--embedded-etcd-peers: peer 5 does not begin with http://, as without certificates`,
			`--embedded-etcd-peers: peer 6 is not id=http://host:port`,
		}},
		{"--embedded-etcd /nowhere --id a --embedded-etcd-peers b=http://10.0.0.2:2380", []string{
			`--embedded-etcd-peers does not name this daemon, whose id is "a"`,
		}},
		{"--embedded-etcd /nowhere --id a --embedded-etcd-peers a=http://host-a:2380", []string{
			`--embedded-etcd-peers: "host-a:2380" is not an IP address and a port, so --embedded-etcd-listen-peer must be given`,
		}},
		{"--embedded-etcd-peers a=http://10.0.0.1:2380 --embedded-etcd-quota 1GiB", []string{
			"--embedded-etcd-peers is of no use without --embedded-etcd", "--embedded-etcd-quota is of no use without --embedded-etcd",
		}},
		{"--embedded-etcd /nowhere --embedded-etcd-quota much", []string{`flag --embedded-etcd-quota: "much" is not a size like 8GiB`}},
		{"--advertise :0", []string{`advertised address ":0" is not host:port`}},
		{"--listen 127.0.0.1:2379 --metrics-listen 127.0.0.1:2379 --embedded-etcd /nowhere --id a --embedded-etcd-peers a=http://127.0.0.1:2379", []string{
			"--metrics-listen and --listen are both 127.0.0.1:2379",
			"--embedded-etcd-listen-client and --metrics-listen are both 127.0.0.1:2379",
			"its own URL in --embedded-etcd-peers and --embedded-etcd-listen-client are both 127.0.0.1:2379",
		}},
		{"--etcd-endpoints me,a:0,b:99999,http://c:1/,https://d:1,unix:///e,f,[::1]:1,//g:1 --etcd-user u --etcd-password-file none --etcd-cert c.pem", []string{
			"endpoint 1 of etcd is not host:port or http(s)://host:port", "endpoint 2 of etcd is not host:port or http(s)://host:port",
			"endpoint 3 of etcd is not host:port or http(s)://host:port", "endpoint 7 of etcd is not host:port or http(s)://host:port",
			"endpoint 9 of etcd is not host:port or http(s)://host:port", "--etcd-cert and --etcd-key go together",
			"--etcd-cacert, --etcd-cert and --etcd-key are of no use to an endpoint that begins with http://",
			"password for etcd: open none: no such file or directory",
		}},
	} {
		r := cli(append([]string{"serve"}, strings.Fields(tt.args)...)...).want(t, exitUsage)
		want := "Error: " + strings.Join(tt.want, "\nError: ") + "\nRun 'controllerd serve --help' for usage.\n"
		if r.stderr != want {
			t.Errorf("serve %s\nstderr:\n%s\nwant:\n%s", tt.args, r.stderr, want)
		}
	}
}

func TestHelp(t *testing.T) {
	root := cli("--help").want(t, exitOK)
	for _, want := range []string{"topic", "broker", "controller", "serve", "version", "completion", exitCodeTable()} {
		if !strings.Contains(root.stdout, want) {
			t.Errorf("no %q in:\n%s", want, root.stdout)
		}
	}
	for _, same := range [][]string{nil, {"help"}, {"-h"}} {
		if got := cli(same...).want(t, exitOK).stdout; got != root.stdout {
			t.Errorf("%q shows:\n%s", same, got)
		}
	}
	topic := cli("topic", "--help").want(t, exitOK)
	if strings.Contains(topic.stdout, "Exit codes") || !strings.Contains(topic.stdout, "describe") {
		t.Errorf("help of topic:\n%s", topic.stdout)
	}
	for _, same := range [][]string{{"topic"}, {"help", "topic"}} {
		if got := cli(same...).want(t, exitOK).stdout; got != topic.stdout {
			t.Errorf("%q shows:\n%s", same, got)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := cli("completion", shell).want(t, exitOK); !strings.Contains(r.stdout, "controllerd") {
			t.Errorf("%s:\n%s", shell, r.stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	v := decode[version](t, cli("version", "-o", "json"))
	if v != *buildVersion() || v.Version == "" || v.Go == "" || v.Platform == "" {
		t.Errorf("%+v", v)
	}
	if r := cli("version").want(t, exitOK); r.lines()[0] != "Version: "+v.Version {
		t.Error(r.stdout)
	}
	if r := cli("--version").want(t, exitOK); r.stdout != "controllerd version "+v.Version+"\n" {
		t.Error(r.stdout)
	}
}

// TestExitCodes is the table in the root's help.
func TestExitCodes(t *testing.T) {
	refused := func(err error) error { return refusal{"127.0.0.1:1", status.Convert(err)} }
	for _, tt := range []struct {
		err  error
		code int
		line string
	}{
		{nil, exitOK, ""},
		{errInterrupted, exitFailed, "interrupted"},
		{usagef("what is %q", "x"), exitUsage, `what is "x"`},
		{refused(rpc.Error(cluster.TopicAlreadyExists, nil, "topic %q exists", "a")), exitFailed, `TOPIC_ALREADY_EXISTS: topic "a" exists`},
		{refused(rpc.Error(cluster.NotController, nil, "no controller is active")), exitAway, "NOT_CONTROLLER: no controller is active"},
		{refused(rpc.Error(cluster.ThrottlingQuotaExceeded, nil, "full")), exitFailed, "THROTTLING_QUOTA_EXCEEDED: full"},
		{refused(status.Error(codes.Unavailable, "EOF")), exitAway, "127.0.0.1:1: EOF"},
		{refused(status.FromContextError(context.DeadlineExceeded).Err()), exitAway, "no answer from 127.0.0.1:1 in time"},
		{noAnswer{"127.0.0.1:1", status.Error(codes.Unavailable, "EOF")}, exitAway, "no answer from etcd at 127.0.0.1:1: EOF"},
		{refused(status.Error(codes.Unimplemented, "unknown method")), exitFailed, "127.0.0.1:1: unknown method"},
		{unreachable{"127.0.0.1:1", errors.New("connection refused")}, exitAway, "cannot reach 127.0.0.1:1: connection refused"},
		{fmt.Errorf("listen: %w", os.ErrPermission), exitFailed, "listen: permission denied"},
		{refused(status.Error(codes.Internal, "two\nlines, \x1b[31mred")), exitFailed, `127.0.0.1:1: two; lines, \x1b[31mred`},
	} {
		var stderr bytes.Buffer
		code := report(&stderr, newRoot(), tt.err)
		line, _, _ := strings.Cut(stderr.String(), "\n")
		if code != tt.code || strings.TrimPrefix(line, "Error: ") != tt.line {
			t.Errorf("%v: code %d, want %d; stderr %q, want %q", tt.err, code, tt.code, line, tt.line)
		}
		if code != exitOK && !strings.Contains(exitCodeTable(), fmt.Sprintf("\n  %d  ", code)) {
			t.Errorf("code %d is not in the help", code)
		}
	}
}
