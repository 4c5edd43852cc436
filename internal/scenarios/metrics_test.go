package scenarios

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/controllerd/controllerd/broker/brokermetrics"
	"github.com/controllerd/controllerd/internal/prom/promtest"
)

// withPages gives a process its HTTP pages. The address is known when it runs.
func withPages() (option func(*exec.Cmd), address func(*testing.T) string) {
	log := &logBuffer{}
	option = func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--metrics-listen", "127.0.0.1:0")
		cmd.Stderr = io.MultiWriter(cmd.Stderr, log)
	}
	return option, func(t *testing.T) string {
		t.Helper()
		found := regexp.MustCompile(`msg="serving metrics" address=(\S+)`).FindStringSubmatch(log.String())
		if found == nil {
			t.Fatalf("no address in:\n%s", log)
		}
		return found[1]
	}
}

// scrape is what Prometheus would read of a process.
func scrape(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// alertRules are the rules in deploy.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

// alertTests are their tests.
type alertTests struct {
	Tests []struct {
		Name  string
		Cases []struct {
			Alert    string           `yaml:"alertname"`
			Expected []map[string]any `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

func readYAML(t *testing.T, path string, into any) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(data)
}

// exprs are all expressions of a dashboard.
func exprs(v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if s, ok := x.(string); ok && (k == "expr" || k == "query") {
				out = append(out, s)
			}
			out = append(out, exprs(x)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, exprs(x)...)
		}
	}
	return out
}

// Every metric that an alert or the dashboard names is there in a scrape of a
// daemon that runs, with brokers, or in one of a broker; every alert has a
// test in which it fires, one in which it does not, and a word on what to do.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	option, address := withPages()
	w.process("a", option)
	w.seated(1, soon)
	brokers := w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(soon)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(brokermetrics.New(brokers[0]))
	var scraped string
	w.await("the daemon shows the topic and the brokers", soon, func() bool {
		scraped = scrape(t, address(t))
		return strings.Contains(scraped, "\ncontrollerd_topics 1\n") && strings.Contains(scraped, "\ncontrollerd_broker_connected{broker=\"2\"} 1\n")
	})
	there := map[string]bool{}
	for _, sample := range regexp.MustCompile(`(?m)^[a-z_]+`).FindAllString(scraped+promtest.Scrape(t, r), -1) {
		there[sample] = true
	}
	named := regexp.MustCompile(`\b(controllerd|go|process)_[a-z_]+`)
	wants := func(where, expr string) {
		t.Helper()
		names := named.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", where, expr)
		}
		for _, name := range names {
			if !there[name] {
				t.Errorf("%s names %s, which is not there", where, name)
			}
		}
	}

	const alertsPath, dashboardPath = "../../deploy/prometheus/alerts.yaml", "../../deploy/grafana/controllerd.json"
	var rules alertRules
	var tests alertTests
	readYAML(t, alertsPath, &rules)
	readYAML(t, "../../deploy/prometheus/alerts_test.yaml", &tests)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Expected) > 0
			quiet[c.Alert] = quiet[c.Alert] || len(c.Expected) == 0
		}
	}
	docs, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			n++
			wants(rule.Alert, rule.Expr)
			if !fires[rule.Alert] || !quiet[rule.Alert] {
				t.Errorf("%s: a test in which it fires: %v, in which it does not: %v", rule.Alert, fires[rule.Alert], quiet[rule.Alert])
			}
			if !strings.Contains(string(docs), "\n| `"+rule.Alert+"` | "+rule.Labels["severity"]+" | ") {
				t.Errorf("docs/METRICS.md does not say what to do about %s, %s", rule.Alert, rule.Labels["severity"])
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["runbook_url"] == "" {
				t.Errorf("%s has no summary or runbook", rule.Alert)
			}
		}
	}
	if rows := strings.Count(string(docs), "\n| `Controllerd"); rows != n || n == 0 {
		t.Errorf("%d alerts, of which docs/METRICS.md explains %d", n, rows)
	}

	var dashboard any
	data, err := os.ReadFile(dashboardPath)
	if err == nil {
		err = json.Unmarshal(data, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, expr := range exprs(dashboard) {
		if expr != "prometheus" { // the type of the data source
			found++
			wants("the dashboard", expr)
		}
	}
	if found < 50 {
		t.Errorf("%d expressions in the dashboard", found)
	}
}

// A daemon that takes over from one that was killed shows how long each phase
// took.
func TestTakeoverIsMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease := func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--lease-ttl", patient.String()) }
	a := w.process("a", lease)
	w.seated(1, soon)
	option, address := withPages()
	w.process("b", option, lease)
	w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(soon)
	before := w.seatTo("a").Epoch
	pass(6 * time.Second) // a term that is younger is not ended by a proof of death
	a.kill()
	w.seated(before+1, takeover)
	var scraped string
	seen := func(name, labels string) bool { return strings.Contains(scraped, "\ncontrollerd_"+name+labels+" 1\n") }
	w.await("b shows all phases", soon, func() bool {
		scraped = scrape(t, address(t))
		return seen("active", "") && seen("takeover_phase_seconds_count", `{phase="ack"}`)
	})
	for _, phase := range []string{"detect", "elect", "decide", "commit", "push"} {
		if !seen("takeover_phase_seconds_count", `{phase="`+phase+`"}`) {
			t.Errorf("phase %s was not measured once:\n%s", phase, scraped)
		}
	}
	if !seen("death_proofs_total", `{verdict="proven"}`) || !seen("session_state", `{state="active"}`) || !seen("terms_won_total", "") {
		t.Errorf("the proof of death or the term is not shown:\n%s", scraped)
	}
}
