// Package kubernetes holds the tests of the manifests beside it.
package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	admission "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/packaging/kubernetes/internal/plugin"
	"github.com/gosoftroce/rocev2/programs"
)

// The daemon and the plugin of a node agree on paths, ports and the resource.
func TestNode(t *testing.T) {
	t.Parallel()
	objects := build(t, nil, "node")
	spec := get[apps.DaemonSet](t, objects, "DaemonSet rocev2d-node").Spec.Template.Spec
	prepare, daemon, device := container(t, &spec, "prepare"), container(t, &spec, "rocev2d"), container(t, &spec, "device-plugin")
	var file config.Config
	for name, o := range objects {
		m, ok := o.(*core.ConfigMap)
		if !ok {
			continue
		}
		if m.Name != volume(t, &spec, "config").ConfigMap.Name {
			t.Errorf("%s is not the one that is mounted", name)
		}
		file = *configuration(t, m.Data["rocev2d.toml"])
	}
	want := plugin.Default()
	flags := flagsOf(t, device.Args)
	for name, value := range map[string]string{
		"resource": want.Resource, "ports": fmt.Sprint(want.Ports), "directory": want.Directory, "libraries": want.Libraries, "kubelet": want.Kubelet,
		"ready": "http://" + file.Admin.Health + "/readyz",
	} {
		if flags[name] != value {
			t.Errorf("the plugin has --%s=%s, want %s", name, flags[name], value)
		}
	}
	if got := flagsOf(t, prepare.Args[1:]); prepare.Args[0] != "prepare" || got["directory"] != want.Directory ||
		got["user"] != fmt.Sprint(*daemon.SecurityContext.RunAsUser) || got["group"] != fmt.Sprint(*daemon.SecurityContext.RunAsGroup) {
		t.Errorf("prepare has %v", prepare.Args)
	}
	if file.Programs.Dir != want.Directory || !file.Programs.Any || file.Admin.Listen != "" {
		t.Errorf("the daemon serves %+v, and listens on %q", file.Programs, file.Admin.Listen)
	}
	for name := range flagsOf(t, daemon.Args) {
		if name != "config" && !slices.ContainsFunc(config.Overrides, func(o config.Overridable) bool { return o.Name == name }) {
			t.Errorf("the daemon has no flag --%s", name)
		}
	}
	for _, probe := range []*core.Probe{daemon.ReadinessProbe, daemon.LivenessProbe} {
		port := slices.IndexFunc(daemon.Ports, func(p core.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.String() })
		if got := fmt.Sprintf("%s:%d", probe.HTTPGet.Host, daemon.Ports[port].ContainerPort); got != file.Admin.Health {
			t.Errorf("a probe asks %s, and the daemon answers at %s", got, file.Admin.Health)
		}
	}
	// The plugin names paths of the node, so its container has them alike.
	mounts := map[string][]core.VolumeMount{"prepare": prepare.VolumeMounts, "rocev2d": daemon.VolumeMounts, "device-plugin": device.VolumeMounts}
	for name, list := range mounts {
		for _, m := range list {
			if v := volume(t, &spec, m.Name); v.HostPath != nil && v.HostPath.Path != m.MountPath {
				t.Errorf("%s has %s of the node in %s", name, v.HostPath.Path, m.MountPath)
			}
		}
	}
	if len(device.VolumeMounts) != 3 || !device.VolumeMounts[0].ReadOnly {
		t.Errorf("the plugin has %v", device.VolumeMounts)
	}
	for _, c := range []*core.Container{prepare, daemon, device} {
		s := c.SecurityContext
		if s.Privileged != nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
			c != prepare && len(s.Capabilities.Add) > 0 {
			t.Errorf("%s has privileges: %+v", c.Name, s)
		}
	}
}

// configuration reads one of the daemon.
func configuration(t *testing.T, text string) *config.Config {
	t.Helper()
	c := config.Default()
	if err := c.Parse("rocev2d.toml", text); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	return c
}

// With the component the daemon shows its metrics, with a token, and Prometheus
// finds them. Environment variables are settings of the daemon.
func TestMetrics(t *testing.T) {
	t.Parallel()
	objects := build(t, map[string]string{"all/kustomization.yaml": "resources: [../node]\ncomponents: [../metrics]\n"}, "all")
	spec := get[apps.DaemonSet](t, objects, "DaemonSet rocev2d-node").Spec.Template
	daemon := container(t, &spec.Spec, "rocev2d")
	env := map[string]string{}
	for _, e := range daemon.Env {
		env[e.Name] = strings.ReplaceAll(e.Value, "$(NODE_IP)", "192.0.2.1")
	}
	if daemon.Env[0].Name != "NODE_IP" {
		t.Errorf("a variable comes before the one that it uses: %v", daemon.Env)
	}
	settings := config.FromEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if len(settings) != 2 {
		t.Errorf("the daemon's variables are the settings %v", settings)
	}
	for _, s := range settings {
		if want := map[string]string{"admin": "192.0.2.1:14791", "token-file": "/run/secrets/rocev2d/token"}[s.Name]; s.Value != want {
			t.Errorf("the daemon has --%s=%s, want %s", s.Name, s.Value, want)
		}
	}
	if len(daemon.VolumeMounts) != 3 || len(daemon.Ports) != 3 {
		t.Errorf("the component takes something away: %v, %v", daemon.VolumeMounts, daemon.Ports)
	}
	for _, m := range daemon.VolumeMounts {
		if v := volume(t, &spec.Spec, m.Name); m.Name == "token" && v.Secret.SecretName != "rocev2d" {
			t.Errorf("the token is of %v", v.Secret)
		}
	}
	watched(t, get[monitoring.ServiceMonitor](t, objects, "ServiceMonitor rocev2d-node"), get[core.Service](t, objects, "Service rocev2d-node"), &spec)
}

// watched checks that a monitor finds the service and the service the pods, and
// that the job has the name that the alert rules ask for.
func watched(t *testing.T, m *monitoring.ServiceMonitor, s *core.Service, pod *core.PodTemplateSpec) {
	t.Helper()
	for key, value := range m.Spec.Selector.MatchLabels {
		if s.Labels[key] != value {
			t.Errorf("the monitor %s does not find the service: %s", m.Name, key)
		}
	}
	for key, value := range s.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the service %s does not find the pods: %s", s.Name, key)
		}
	}
	if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
		t.Errorf("the service %s has no port %s", s.Name, m.Spec.Endpoints[0].Port)
	}
	if r := m.Spec.Endpoints[0].RelabelConfigs; len(r) != 1 || r[0].TargetLabel != "job" || *r[0].Replacement != "rocev2d" {
		t.Errorf("the monitor %s: %v", m.Name, r)
	}
	rules, err := os.ReadFile("../prometheus/rocev2d.rules.yml")
	if err != nil || !bytes.Contains(rules, []byte(`job="rocev2d"`)) {
		t.Errorf("the alert rules ask for another job: %v", err)
	}
}

// Every manifest is right to its fields, and what it names fits together. Pods
// that use a port, or have the daemon beside them, are admitted where the
// strictest of Kubernetes's standards holds.
func TestManifests(t *testing.T) {
	t.Parallel()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := admission.LevelVersion{Level: admission.LevelRestricted, Version: admission.LatestVersion()}
	users := 0
	for _, name := range append(glob(t, "examples/*.yaml"), "rocev2d.yaml", "programs.yaml", "rocev2d-metrics.yaml") {
		objects := decode(t, name, read(t, name))
		for kind, o := range objects {
			for _, pod := range podsOf(o) {
				for _, r := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
					if !r.Allowed {
						t.Errorf("%s: %s: %s: %s", name, kind, r.ForbiddenReason, r.ForbiddenDetail)
					}
				}
				users += asksFor(t, name, &pod.Spec)
			}
			if s, ok := o.(*core.Service); ok && s.Spec.ClusterIP != core.ClusterIPNone {
				t.Errorf("%s: %s has a virtual address", name, kind)
			}
			if p, ok := o.(*networking.NetworkPolicy); ok {
				fits(t, name, p, objects)
			}
		}
	}
	if users != 3 {
		t.Errorf("%d pods of the examples ask for a port", users)
	}
	o := decode(t, "rocev2d.yaml", read(t, "rocev2d.yaml"))
	m := decode(t, "rocev2d-metrics.yaml", read(t, "rocev2d-metrics.yaml"))
	watched(t, get[monitoring.ServiceMonitor](t, m, "ServiceMonitor rocev2d"), get[core.Service](t, o, "Service rocev2d"), &get[apps.Deployment](t, o, "Deployment rocev2d").Spec.Template)
}

// asksFor returns how many containers ask for a port. They ask for nothing else
// of rocev2, and no volume has the plugin's paths.
func asksFor(t *testing.T, name string, spec *core.PodSpec) (n int) {
	t.Helper()
	for _, c := range spec.Containers {
		for resource, q := range c.Resources.Limits {
			switch {
			case string(resource) == plugin.Default().Resource:
				n++
				if q.Value() != 1 {
					t.Errorf("%s: %s asks for %v", name, c.Name, q.Value())
				}
			case resource != core.ResourceMemory && resource != core.ResourceCPU:
				t.Errorf("%s: %s asks for %s", name, c.Name, resource)
			}
		}
		for _, m := range c.VolumeMounts {
			if n > 0 && (m.MountPath == plugin.PodDirectory || m.MountPath == plugin.PodLibraries) {
				t.Errorf("%s: %s has a volume where the plugin's is", name, c.Name)
			}
		}
	}
	return n
}

// fits checks that a policy is for pods that there are, and for ports that they
// have.
func fits(t *testing.T, name string, p *networking.NetworkPolicy, objects map[string]any) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]bool{"4791": true}
	pods := 0
	for _, o := range objects {
		if s, ok := o.(*core.Service); ok {
			for _, port := range s.Spec.Ports {
				ports[fmt.Sprint(port.Port)] = true
			}
		}
		for _, pod := range podsOf(o) {
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			pods++
			for _, c := range pod.Spec.Containers {
				for _, port := range c.Ports {
					ports[port.Name] = true
				}
			}
		}
	}
	if pods == 0 {
		t.Errorf("%s: the policy is for no pod", name)
	}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if !ports[port.Port.String()] {
				t.Errorf("%s: the policy opens %v, which no pod has", name, port.Port)
			}
		}
	}
}

// A field that there is not, and a resource of another name, would be found.
func TestManifestsAreStrict(t *testing.T) {
	t.Parallel()
	text := string(read(t, "examples/write-bw.yaml"))
	for old, wrong := range map[string]string{
		"      resources:":       "      resource:",
		"readOnlyRootFilesystem": "readonlyRootFS",
		"clusterIP: None":        "clusterIP: None\n  clusterIP: None",
		"backoffLimit: 4":        "backoffLimit: four",
		"policyTypes:":           "policies:",
	} {
		if !strings.Contains(text, old) {
			t.Errorf("the example lacks %q", old)
		}
		for doc := range strings.SplitSeq(strings.ReplaceAll(text, old, wrong), "\n---\n") {
			var head meta.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil || !strings.Contains(doc, wrong) {
				continue
			}
			if yaml.UnmarshalStrict([]byte(doc), types[head.APIVersion+"/"+head.Kind]()) == nil {
				t.Errorf("%q is no mistake", wrong)
			}
		}
	}
}

// The images have the programs that the manifests run, and are called alike.
func TestImages(t *testing.T) {
	t.Parallel()
	built := map[string]string{ // how the first lines of a Containerfile build it
		"rocev2d": "../Containerfile", "rocev2-device-plugin": "Containerfile",
		"rocev2-programs": "../programs/Containerfile", "rocev2-examples": "examples/Containerfile",
	}
	for image, file := range built {
		if !strings.Contains(string(read(t, file)), "-t "+image+" ") {
			t.Errorf("%s does not say how %s is built", file, image)
		}
	}
	seen := map[string]bool{}
	all := map[string]map[string]any{"node": build(t, nil, "node")}
	for _, name := range append(glob(t, "examples/*.yaml"), "rocev2d.yaml", "programs.yaml") {
		all[name] = decode(t, name, read(t, name))
	}
	for name, objects := range all {
		for _, o := range objects {
			for _, pod := range podsOf(o) {
				for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
					image, tag, _ := strings.Cut(c.Image, ":")
					if built[image] == "" || tag != "latest" {
						t.Errorf("%s: nothing builds %s", name, c.Image)
					}
					seen[image] = true
				}
			}
		}
	}
	if len(seen) != len(built) {
		t.Errorf("of the images %v only %v are used", built, seen)
	}
	text := string(read(t, "Containerfile"))
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(read(t, "go.mod")))[1]
	for _, want := range []string{"golang:" + version + "-bookworm ", "go run ./programs/mkpreload", "CGO_ENABLED=0", "FROM scratch", `ENTRYPOINT ["/rocev2-device-plugin"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("the Containerfile lacks %q", want)
		}
	}
}

// document is the one that explains all this.
const document = "../../docs/kubernetes.md"

// What the document has for a folder of one's own is built, with the component,
// and names the images.
func TestDocumentedCluster(t *testing.T) {
	t.Parallel()
	text := string(read(t, document))
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	var mine, component string
	for _, b := range blocks {
		switch {
		case strings.Contains(b[1], "kind: Kustomization"):
			mine = b[1]
		case strings.HasPrefix(b[1], "components:"):
			component = b[1]
		}
	}
	objects := build(t, map[string]string{"cluster/kustomization.yaml": mine + component}, "cluster")
	if objects["ServiceMonitor rocev2d-node"] == nil {
		t.Error("the component is not there")
	}
	spec := get[apps.DaemonSet](t, objects, "DaemonSet rocev2d-node").Spec.Template.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if !strings.HasPrefix(c.Image, "registry.example.com/") {
			t.Errorf("the image of %s is %s", c.Name, c.Image)
		}
	}
}

// The document says what the plugin says, and what it gives.
func TestDocumentedWords(t *testing.T) {
	t.Parallel()
	text := string(read(t, document))
	var source strings.Builder
	for _, name := range glob(t, "internal/plugin/*.go") {
		source.Write(read(t, name))
	}
	for _, words := range []string{"the kubelet has not registered the resource", "another plugin offers the resource on this node"} {
		if !strings.Contains(text, words) || !strings.Contains(source.String(), words) {
			t.Errorf("only one of the document and the plugin says %q", words)
		}
	}
	c := plugin.Default()
	for _, want := range []string{
		c.Resource + ": 1", "requests." + c.Resource, fmt.Sprintf("shows %d ports", c.Ports), "`" + c.Directory + "`", "`" + c.Libraries + "`", "`" + c.Kubelet + "`",
		"`" + plugin.PodDirectory + "`", "`" + plugin.PodLibraries + "`", "ROCEV2_PROGRAMS=" + plugin.PodDirectory, "LD_PRELOAD=" + plugin.PodLibraries + "/" + programs.LibraryName,
		fmt.Sprintf("every %v s", c.Interval.Seconds()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document does not say %q", want)
		}
	}
	args := strings.Join(object[mpi.MPIJob](t, "examples/mpi.yaml", "MPIJob mpi").Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{"-x LD_PRELOAD=" + plugin.PodLibraries + "/" + programs.LibraryName, "-x ROCEV2_PROGRAMS=" + plugin.PodDirectory} {
		if !strings.Contains(args, want) {
			t.Errorf("the launcher lacks %q", want)
		}
	}
}
