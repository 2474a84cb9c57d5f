package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/gosoftroce/rocev2/internal/debian"
	"github.com/gosoftroce/rocev2/packaging/kubernetes/internal/plugin"
	"github.com/gosoftroce/rocev2/programs"
)

var clusterNeeds = []debian.Need{
	{File: "containerd", Package: "containerd"}, {File: "runc", Package: "runc"}, {File: "/usr/lib/cni/bridge", Package: "containernetworking-plugins"},
	{File: "ip", Package: "iproute2"}, {File: "nsenter", Package: "util-linux"}, {File: "debootstrap", Package: "debootstrap"}, {File: "ssh-keygen", Package: "openssh-client"},
}

// kubeletEnv names a kubelet, in the place of one that is built.
const kubeletEnv = "ROCEV2_KUBELET"

// buildKubelet builds the kubelet of the module beside, which takes 10 minutes
// the first time.
func buildKubelet(t *testing.T, dir string) string {
	t.Helper()
	if file := os.Getenv(kubeletEnv); file != "" {
		return file
	}
	file := filepath.Join(dir, "kubelet")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "kubelet", "-o", file, "k8s.io/kubernetes/cmd/kubelet").CombinedOutput()
	if err != nil {
		t.Fatalf("build a kubelet: %v\n%s", err, out)
	}
	return file
}

// TestCluster has kubelets of two nodes run the DaemonSet, and then the
// examples: pods without privileges on two nodes use the devices of these.
// There is no server of the API: what that would do to pods, and the operator
// of MPI, the test does.
func TestCluster(t *testing.T) {
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("set ROCEV2_E2E=1 (make test-cluster): it builds a kubelet, and installs a Debian")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make the namespaces of a node")
	}
	if !programs.Carried() {
		t.Skip("this test carries no libraries for pods (make preload builds them)")
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("there are no libraries for pods of this processor: run it on amd64 or arm64")
	}
	if err := debian.Install(t.Context(), t.TempDir(), clusterNeeds, t.Logf); err != nil {
		if _, ok := errors.AsType[*debian.Unavailable](err); ok {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubelet := buildKubelet(t, dir)
	debian := examples(t, dir)
	pause := debian
	pause.name, pause.config = "pause", map[string]any{"Entrypoint": []string{"/bin/sleep", "infinity"}}
	var files []string
	for _, i := range []image{
		pause, debian, static(t, dir, "rocev2d", "65532:65532", "../..", "./cmd/rocev2d", "./cmd/rocev2"),
		static(t, dir, "rocev2-device-plugin", "", ".", "./cmd/rocev2-device-plugin"),
	} {
		files = append(files, filepath.Join(dir, i.name+".tar"))
		i.archive(t, files[len(files)-1])
	}
	c := &cluster{kubelet: kubelet, a: startNode(t, "a", 1, files), b: startNode(t, "b", 2, files)}
	c.connect(t)
	c.install(t)
	defer c.end(t) // before the nodes end
	t.Run("write-bw", c.writeBW)
	t.Run("mpi", c.mpi)
	t.Run("kubelet", c.kubeletRestarts)
	t.Run("daemon", c.daemonRestarts)
}

type cluster struct {
	kubelet string
	a, b    *node
	server  string // address of the pod with ib_write_bw
}

// connect makes a network of the two nodes, by which their pods reach each
// other, too.
func (c *cluster) connect(t *testing.T) {
	t.Helper()
	run(t, "ip", "link", "add", "eth0", "netns", fmt.Sprint(c.a.init), "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(c.b.init))
	for n, peer := range map[*node]*node{c.a: c.b, c.b: c.a} {
		for _, args := range [][]string{
			{"addr", "add", n.addr() + "/24", "dev", "eth0"}, {"link", "set", "eth0", "up"},
			{"route", "add", fmt.Sprintf("10.88.%d.0/24", peer.number), "via", peer.addr()},
		} {
			if out, err := n.command(t, append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %v: %v\n%s", args, err, out)
			}
		}
	}
}

// install starts the kubelets, with a pod each as the DaemonSet makes it. Pods
// of a kubelet alone have no ConfigMaps: a file has it.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	objects := build(t, nil, "node")
	pod := get[apps.DaemonSet](t, objects, "DaemonSet rocev2d-node").Spec.Template
	pod.Spec.PriorityClassName = ""
	for _, n := range []*node{c.a, c.b} {
		for _, o := range objects {
			if m, ok := o.(*core.ConfigMap); ok {
				if err := os.WriteFile(filepath.Join(n.dir, "files", "rocev2d.toml"), []byte(m.Data["rocev2d.toml"]), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		v := volume(t, &pod.Spec, "config")
		v.VolumeSource = core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: filepath.Join(n.dir, "files")}}
		n.add(t, "rocev2d", pod)
		n.startKubelet(t, c.kubelet)
	}
	for _, n := range []*node{c.a, c.b} {
		n.reaches(t, "rocev2d", core.PodRunning)
		c.offers(t, n)
	}
}

// offers waits until a kubelet has all ports to give.
func (c *cluster) offers(t *testing.T, n *node) {
	t.Helper()
	want := plugin.Default()
	eventually(t, "ports of "+n.name, func() (bool, error) {
		ports, _, err := n.resources(t, want.Resource)
		return ports == want.Ports, errors.Join(err, fmt.Errorf("%d ports", ports))
	})
}

// end has the kubelets end their pods.
func (c *cluster) end(t *testing.T) {
	for _, n := range []*node{c.a, c.b} {
		n.note(t)
		files, _ := filepath.Glob(filepath.Join(n.dir, "pods", "*")) // the pattern is good
		for _, name := range files {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "the end of the pods", func() (bool, error) {
			list, err := n.pods(t)
			return err == nil && len(list) == 0, err
		})
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(n.dir, "kubelet.log"))
			t.Logf("the kubelet of %s:\n%s", n.name, log[max(0, len(log)-4000):])
		}
	}
}

// client runs the client of ib_write_bw on node b, with a name of its own.
func (c *cluster) client(t *testing.T, name string) {
	t.Helper()
	pod := object[batch.Job](t, "examples/write-bw.yaml", "Job write-bw-client").Spec.Template
	command := pod.Spec.Containers[0].Command
	i := len(command) - 1
	if command[i] = strings.ReplaceAll(command[i], "-F write-bw", "-F "+c.server); !strings.Contains(command[i], c.server) {
		t.Fatalf("the client dials another server: %q", command)
	}
	before := c.b.sent(t)
	c.b.add(t, name, pod)
	done := c.b.reaches(t, name, core.PodSucceeded)
	log := c.b.logs(&done)
	if !regexp.MustCompile(`65536 +5000 +[0-9.]+ +[0-9.]+`).MatchString(log) {
		t.Errorf("no result:\n%s", log)
	}
	if sent := c.b.sent(t) - before; sent < 5000*64<<10 {
		t.Errorf("the node has sent %d bytes", sent)
	}
	t.Logf("report: %s", regexp.MustCompile(`65536 +5000.*`).FindString(log))
}

func (c *cluster) writeBW(t *testing.T) {
	pod := object[core.Pod](t, "examples/write-bw.yaml", "Pod write-bw")
	c.a.add(t, "write-bw", core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
	running := c.a.reaches(t, "write-bw", core.PodRunning)
	c.server = running.Status.PodIP
	if _, given, err := c.a.resources(t, plugin.Default().Resource); err != nil || !slices.Equal(given, []string{"write-bw-a"}) {
		t.Errorf("the kubelet has given ports to %v, %v", given, err)
	}
	unprivileged(t, pod.Spec.Containers[0].Command)
	c.client(t, "client")
}

// unprivileged checks what a program of a pod may: nothing but what an ordinary
// user may, and to read what the plugin gives.
func unprivileged(t *testing.T, argv []string) {
	t.Helper()
	pids := processes(argv...)
	if len(pids) != 1 {
		t.Fatalf("%d processes %q", len(pids), argv)
	}
	status, mounts := string(read(t, fmt.Sprintf("/proc/%d/status", pids[0]))), string(read(t, fmt.Sprintf("/proc/%d/mountinfo", pids[0])))
	for _, want := range []string{"Uid:\t1000\t1000\t", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("the program of the pod lacks %q:\n%s", want, status)
		}
	}
	for _, dir := range []string{plugin.PodDirectory, plugin.PodLibraries} {
		if !strings.Contains(mounts, " "+dir+" ro,") {
			t.Errorf("%s is not mounted read-only in the pod:\n%s", dir, mounts)
		}
	}
}

// mpi runs the job as the operator would: with keys, and a list of hosts.
func (c *cluster) mpi(t *testing.T) {
	job := object[mpi.MPIJob](t, "examples/mpi.yaml", "MPIJob mpi")
	keys := filepath.Join(t.TempDir(), "id_rsa")
	run(t, "ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", keys)
	var hosts strings.Builder
	for _, n := range []*node{c.a, c.b} {
		for from, to := range map[string]string{keys: "id_rsa", keys + ".pub": "authorized_keys"} {
			if err := os.WriteFile(filepath.Join(n.dir, "files", to), read(t, from), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		n.add(t, "worker", c.operated(n, job, mpi.MPIReplicaTypeWorker))
		pod := n.reaches(t, "worker", core.PodRunning)
		fmt.Fprintf(&hosts, "%s slots=%d\n", pod.Status.PodIP, *job.Spec.SlotsPerWorker)
	}
	if err := os.WriteFile(filepath.Join(c.a.dir, "files", "hostfile"), []byte(hosts.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	before := c.a.sent(t)
	c.a.add(t, "launcher", c.operated(c.a, job, mpi.MPIReplicaTypeLauncher))
	done := c.a.reaches(t, "launcher", core.PodSucceeded)
	log := c.a.logs(&done)
	if !strings.Contains(log, "(4 processes, 65536 bytes)") {
		t.Errorf("no result:\n%s", log)
	}
	// In each of the rounds a node sends to the other one. UCX has no TCP.
	if sent := c.a.sent(t) - before; sent < 100*64<<10 {
		t.Errorf("the node has sent %d bytes", sent)
	}
	t.Logf("report: %s", regexp.MustCompile(`time for.*`).FindString(log))
}

// operated is a pod of an MPI job as the operator makes it.
func (c *cluster) operated(n *node, job *mpi.MPIJob, role mpi.MPIReplicaType) core.PodTemplateSpec {
	pod := *job.Spec.MPIReplicaSpecs[role].Template.DeepCopy()
	if role == mpi.MPIReplicaTypeLauncher {
		pod.Spec.RestartPolicy = core.RestartPolicyNever // a failure is one
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, core.Volume{Name: "files", VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: filepath.Join(n.dir, "files")}}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, core.VolumeMount{Name: "files", MountPath: job.Spec.SSHAuthMountPath}, core.VolumeMount{Name: "files", MountPath: "/etc/mpi"})
	main.Env = append(main.Env, core.EnvVar{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "true"},
		core.EnvVar{Name: "OMPI_MCA_orte_default_hostfile", Value: "/etc/mpi/hostfile"}, core.EnvVar{Name: "OMPI_MCA_plm_rsh_args", Value: "-o ConnectionAttempts=10"})
	return pod
}

// kubeletRestarts: another kubelet gets the ports, and the pods go on.
func (c *cluster) kubeletRestarts(t *testing.T) {
	pod := c.a.reaches(t, "rocev2d", core.PodRunning)
	times := func() int { return strings.Count(c.a.logs(&pod), "the kubelet has registered the resource") }
	before := times()
	c.a.killKubelet(t)
	c.a.startKubelet(t, c.kubelet)
	eventually(t, "a registration", func() (bool, error) { return times() > before, nil })
	c.offers(t, c.a)
	for _, name := range []string{"rocev2d", "write-bw"} {
		for _, s := range c.a.reaches(t, name, core.PodRunning).Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("%s of %s has begun anew", s.Name, name)
			}
		}
	}
	c.client(t, "second-client")
}

// daemonRestarts: programs find the daemon that comes after one that was
// killed, in the pods that there are.
func (c *cluster) daemonRestarts(t *testing.T) {
	network, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.a.init))
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, pid := range processes("/rocev2d") {
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || at != network {
			continue // another node's
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d daemons killed", killed)
	}
	eventually(t, "the next daemon", func() (bool, error) {
		for _, s := range c.a.reaches(t, "rocev2d", core.PodRunning).Status.ContainerStatuses {
			if s.Name == "rocev2d" && s.RestartCount > 0 {
				return true, nil
			}
		}
		return false, nil
	})
	c.offers(t, c.a)
	c.client(t, "third-client")
}
