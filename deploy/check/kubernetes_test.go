package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// cluster is what the manifests would make.
type cluster struct {
	account  *corev1.ServiceAccount
	config   *corev1.ConfigMap
	services map[string]*corev1.Service
	set      *appsv1.StatefulSet
	budget   *policyv1.PodDisruptionBudget
	policy   *networkingv1.NetworkPolicy
}

// decode reads manifests as an API server does that refuses what it does not
// know: fields that do not exist, or are there twice, are errors.
func decode(text []byte) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var found []runtime.Object
	for r := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
		document := make([]byte, 64<<10)
		n, err := r.Read(document)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(document[:n], nil, nil)
		if err != nil {
			return nil, err
		}
		found = append(found, object)
	}
}

func manifests(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../kubernetes/controllerd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t *testing.T) cluster {
	t.Helper()
	objects, err := decode(manifests(t))
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{services: map[string]*corev1.Service{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			c.account = o
		case *corev1.ConfigMap:
			c.config = o
		case *corev1.Service:
			c.services[o.Name] = o
		case *appsv1.StatefulSet:
			c.set = o
		case *policyv1.PodDisruptionBudget:
			c.budget = o
		case *networkingv1.NetworkPolicy:
			c.policy = o
		}
	}
	if len(objects) != 7 || len(c.services) != 2 || c.account == nil || c.config == nil || c.set == nil || c.budget == nil || c.policy == nil {
		t.Fatalf("%d objects: %+v", len(objects), c)
	}
	return c
}

// TestDecodeIsStrict: what the other tests rely on.
func TestDecodeIsStrict(t *testing.T) {
	text := string(manifests(t))
	for _, change := range [][2]string{
		{"replicas: 3", "replica: 3"},
		{"replicas: 3", "replicas: three"},
		{"replicas: 3", "replicas: 3\n  replicas: 3"},
		{"path: /livez", "paht: /livez"},
		{"apiVersion: policy/v1", "apiVersion: policy/v2"},
		{"topologyKey: kubernetes.io/hostname", "topologykey: kubernetes.io/hostname"},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%q is not there", change[0])
		}
		if _, err := decode([]byte(changed)); err == nil {
			t.Errorf("%q instead of %q is accepted", change[1], change[0])
		}
	}
}

// TestNamesMeet: what refers to something by a name or a label finds it.
func TestNamesMeet(t *testing.T) {
	c := load(t)
	pod := c.set.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	daemon := pod.Containers[0]
	set := labels.Set(c.set.Spec.Template.Labels)
	selectors := map[string]*metav1.LabelSelector{
		"stateful set": c.set.Spec.Selector, "budget": c.budget.Spec.Selector, "network policy": &c.policy.Spec.PodSelector,
	}
	for name, s := range c.services {
		selectors["service "+name] = &metav1.LabelSelector{MatchLabels: s.Spec.Selector}
		for _, p := range s.Spec.Ports {
			if !hasPort(daemon, p.TargetPort) {
				t.Errorf("service %s: no port %s", name, p.TargetPort.String())
			}
		}
	}
	apart := pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for _, a := range apart {
		selectors["apart by "+a.PodAffinityTerm.TopologyKey] = a.PodAffinityTerm.LabelSelector
	}
	if !slices.ContainsFunc(apart, func(a corev1.WeightedPodAffinityTerm) bool {
		return a.PodAffinityTerm.TopologyKey == corev1.LabelHostname
	}) {
		t.Error("two daemons may share a node")
	}
	for name, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(set) {
			t.Errorf("%s does not select the pods: %v", name, err)
		}
	}
	for _, probe := range []*corev1.Probe{daemon.LivenessProbe, daemon.ReadinessProbe} {
		if !hasPort(daemon, probe.HTTPGet.Port) {
			t.Errorf("probe %s: no port %s", probe.HTTPGet.Path, probe.HTTPGet.Port.String())
		}
	}
	for _, in := range c.policy.Spec.Ingress {
		for _, p := range in.Ports {
			if !hasPort(daemon, *p.Port) {
				t.Errorf("network policy: no port %s", p.Port.String())
			}
		}
	}
	if pod.ServiceAccountName != c.account.Name {
		t.Errorf("service account %q", pod.ServiceAccountName)
	}
	if peers := c.services[c.set.Spec.ServiceName]; peers == nil || peers.Spec.ClusterIP != corev1.ClusterIPNone || !peers.Spec.PublishNotReadyAddresses {
		t.Errorf("service %q of the stateful set: %+v", c.set.Spec.ServiceName, peers)
	}
}

func hasPort(c corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return port == intstr.FromString(p.Name) || port == intstr.FromInt32(p.ContainerPort)
	})
}

// TestPods: three of them, that may do nothing but run the image.
func TestPods(t *testing.T) {
	c := load(t)
	pod := c.set.Spec.Template.Spec
	daemon := pod.Containers[0]
	if *c.set.Spec.Replicas != 3 || c.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%d replicas, %s may be away", *c.set.Spec.Replicas, c.budget.Spec.MaxUnavailable)
	}
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != user || *s.RunAsGroup != user {
		t.Errorf("the pod runs as %+v, the image as %d", s, user)
	}
	if s := daemon.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v", s)
	}
	if *pod.EnableServiceLinks || *pod.AutomountServiceAccountToken {
		t.Error("service links or the token of the account are mounted")
	}
	const ends = 8 // seconds that the daemon takes to end at most
	if *pod.TerminationGracePeriodSeconds <= ends {
		t.Errorf("killed after %d s", *pod.TerminationGracePeriodSeconds)
	}
	file := strings.TrimPrefix(daemon.Args[1], "--config=")
	if m := daemon.VolumeMounts[0]; m.Name != pod.Volumes[0].Name || m.MountPath != path.Dir(file) {
		t.Errorf("%s is not in %s", file, m.MountPath)
	}
	if pod.Volumes[0].ConfigMap.Name != c.config.Name || c.config.Data[path.Base(file)] == "" {
		t.Errorf("no %s in the config map %q", path.Base(file), pod.Volumes[0].ConfigMap.Name)
	}
}
