package promtest

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var update = flag.Bool("update", false, "write tables in docs anew")

// Docs checks that a page has a table as it is, between "<!-- table of NAME -->"
// and "<!-- end -->". The flag -update writes it.
func Docs(t *testing.T, path, name, table string) {
	t.Helper()
	begin, end := "<!-- table of "+name+" -->\n", "<!-- end -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(data), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s has not the marks of the table of %s", path, name)
	case *update:
		if err := os.WriteFile(path, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != table:
		t.Errorf("%s is stale: run this test with -update", path)
	}
}

// Scrape is what Prometheus would read.
func Scrape(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return "\n" + w.Body.String()
}
