package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	core "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// node is a kubelet and a containerd in namespaces of their own: what they
// start ends with the first process there.
type node struct {
	name    string
	number  int
	dir     string
	init    int // process
	kubelet *exec.Cmd
	ids     []string // of containers
}

// beginNode is the first process of a node. It hides what the kubelet and the
// containers would write to, also the settings that the kubelet has for a whole
// machine.
const beginNode = `set -e
for d in /run /var/lib /var/log; do mount -t tmpfs tmpfs $d; done
mkdir /var/lib/kubelet
for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	cat /proc/sys/$f > $1/sysctl-${f##*/}
	mount --bind $1/sysctl-${f##*/} /proc/sys/$f
done
mount --make-rshared /
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
while :; do sleep 3600 & wait; done`

const containerdConfig = `version = 2
root = "DIR/root"
state = "DIR/state"
[grpc]
  address = "DIR/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:latest"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "DIR/cni"
`

const podNetwork = `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,
"ipam":{"type":"host-local","dataDir":"DIR/addresses","ranges":[[{"subnet":"10.88.NUMBER.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://DIR/sock
staticPodPath: DIR/pods
fileCheckFrequency: 1s
readOnlyPort: 10255
resolvConf: ""
failSwapOn: false
evictionHard: {memory.available: 1Mi}
volumePluginDir: /var/lib/kubelet/plugins
`

// startNode begins a node, without a kubelet.
func startNode(t *testing.T, name string, number int, images []string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "k8s") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{name: name, number: number, dir: dir}
	for _, sub := range []string{"cni", "pods", "files"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill := strings.NewReplacer("DIR", dir, "NUMBER", strconv.Itoa(number))
	for file, text := range map[string]string{"containerd.toml": containerdConfig, "cni/pods.conflist": podNetwork, "kubelet.yaml": kubeletConfig} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(fill.Replace(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", beginNode, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // all of the node dies
		_ = cmd.Wait()
		n.leaveNoGroups()
	})
	said := make([]byte, 6)
	if _, err := io.ReadFull(out, said); err != nil {
		_ = cmd.Wait()
		t.Skipf("this machine has no namespaces for a node (run as root of a machine, not of a container that keeps it from them): %v\n%s", err, &stderr)
	}
	n.init = child(t, cmd.Process.Pid)
	n.start(t, "containerd", "containerd", "-c", filepath.Join(dir, "containerd.toml"))
	ctr := []string{"ctr", "-a", filepath.Join(dir, "sock"), "-n", "k8s.io"}
	eventually(t, "containerd", func() (bool, error) {
		_, err := n.command(t, append(ctr, "version")...).CombinedOutput()
		return err == nil, err
	})
	for _, file := range images {
		if out, err := n.command(t, append(ctr, "images", "import", file)...).CombinedOutput(); err != nil {
			t.Fatalf("import %s: %v\n%s", file, err, out)
		}
	}
	return n
}

func (n *node) addr() string { return fmt.Sprintf("10.47.0.%d", n.number) }

// command is one that runs in the node.
func (n *node) command(t *testing.T, argv ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "nsenter", append([]string{"-t", strconv.Itoa(n.init), "-n", "-m", "-p", "--"}, argv...)...)
}

// start starts a command whose output is kept under a name.
func (n *node) start(t *testing.T, name string, argv ...string) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := n.command(t, argv...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// child returns the process that another one has started.
func child(t *testing.T, pid int) (of int) {
	t.Helper()
	eventually(t, "the process's child", func() (bool, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return false, err
		}
		_, err = fmt.Sscan(string(text), &of)
		return err == nil, err
	})
	return of
}

// startKubelet starts the node's kubelet, also in the place of one that ended.
func (n *node) startKubelet(t *testing.T, program string) {
	t.Helper()
	n.kubelet = n.start(t, "kubelet", program, "--config", filepath.Join(n.dir, "kubelet.yaml"), "--root-dir", "/var/lib/kubelet", "--node-ip", n.addr(), "--hostname-override", n.name)
}

// killKubelet leaves the containers as they are.
func (n *node) killKubelet(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(child(t, n.kubelet.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = n.kubelet.Wait() // killed
}

// note asks containerd which containers there are.
func (n *node) note(t *testing.T) {
	t.Helper()
	out, err := n.command(t, "ctr", "-a", filepath.Join(n.dir, "sock"), "-n", "k8s.io", "containers", "list", "-q").Output()
	if err != nil {
		t.Error(err)
	}
	n.ids = strings.Fields(string(out))
}

// leaveNoGroups removes the control groups of containers that were killed with
// the node, once their processes are gone. The machine's groups have no
// namespaces.
func (n *node) leaveNoGroups() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		left := 0
		for _, all := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
			parents, _ := filepath.Glob(all) // the pattern is good
			for _, dir := range parents {
				for _, id := range n.ids {
					if err := os.Remove(filepath.Join(dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
						left++
					}
				}
				_ = os.Remove(dir) // if nothing else is there
			}
		}
		if left == 0 {
			return
		}
		<-tick.C
	}
}

// path is that of a file as the node sees it.
func (n *node) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", n.init, name) }

// dial connects to an address in the network of the node. A socket belongs to
// the network in which its thread is. The thread comes back: if it ended, the
// kernel would kill the processes that it has started.
func (n *node) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, e := os.Open("/proc/thread-self/ns/net")
		there, e2 := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.init))
		if err = errors.Join(e, e2); err != nil {
			return
		}
		defer home.Close()
		defer there.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		if e := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); e != nil {
			err = errors.Join(err, e)
			return // the thread is of no use
		}
		runtime.UnlockOSThread()
	}()
	<-done
	return conn, err
}

// pods asks the kubelet for its pods.
func (n *node) pods(t *testing.T) ([]core.Pod, error) {
	c := &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := c.Get("http://127.0.0.1:10255/pods")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var list core.PodList
	return list.Items, json.NewDecoder(res.Body).Decode(&list)
}

// add has the kubelet run a pod.
func (n *node) add(t *testing.T, name string, pod core.PodTemplateSpec) {
	t.Helper()
	p := core.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	p.APIVersion, p.Kind, p.Name, p.Namespace = "v1", "Pod", name, "default"
	text, err := json.Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(n.dir, name)
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(n.dir, "pods", name+".json")); err != nil {
		t.Fatal(err)
	}
}

// reaches waits until a pod is in a phase, and ready if it runs.
func (n *node) reaches(t *testing.T, name string, phase core.PodPhase) (pod core.Pod) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s on %s: %s", name, n.name, phase), func() (bool, error) {
		list, err := n.pods(t)
		i := slices.IndexFunc(list, func(p core.Pod) bool { return p.Name == name+"-"+n.name })
		if err != nil || i < 0 {
			return false, errors.Join(err, errors.New("no such pod"))
		}
		pod = list[i]
		if phase != core.PodFailed && pod.Status.Phase == core.PodFailed {
			t.Fatalf("pod %s has failed: %+v\n%s", pod.Name, pod.Status, n.logs(&pod))
		}
		ready := true
		for _, c := range pod.Status.ContainerStatuses {
			ready = ready && (c.Ready || phase != core.PodRunning)
		}
		return pod.Status.Phase == phase && ready, fmt.Errorf("%+v\n%s", pod.Status, n.logs(&pod))
	})
	return pod
}

// logs is what a pod's containers have said.
func (n *node) logs(pod *core.Pod) string {
	var b strings.Builder
	files, _ := filepath.Glob(n.path(fmt.Sprintf("/var/log/pods/%s_%s_*/*/*.log", pod.Namespace, pod.Name))) // the pattern is good
	for _, name := range files {
		text, _ := os.ReadFile(name) // what there is
		b.Write(text)
	}
	return b.String()
}

// resources asks the kubelet which ports it has to give, and which pods have
// some.
func (n *node) resources(t *testing.T, resource string) (free int, given []string, err error) {
	conn, err := grpc.NewClient("unix://"+n.path("/var/lib/kubelet/pod-resources/kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	c := podresources.NewPodResourcesListerClient(conn)
	all, err := c.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return 0, nil, err
	}
	for _, d := range all.Devices {
		if d.ResourceName == resource {
			free += len(d.DeviceIds)
		}
	}
	list, err := c.List(t.Context(), &podresources.ListPodResourcesRequest{})
	for _, p := range list.GetPodResources() {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == resource {
					given = append(given, p.Name)
				}
			}
		}
	}
	return free, given, err
}

// sent is how many bytes the node has sent to the other one.
func (n *node) sent(t *testing.T) (bytes int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", n.init))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 9 && f[0] == "eth0:" {
			bytes, err = strconv.Atoi(f[9])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// eventually waits until something holds. What it is says no event.
func eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within 4 minutes: %v", what, err)
		}
	}
}

// processes returns those whose arguments begin with some.
func processes(argv ...string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range all {
		text, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && bytes.HasPrefix(text, []byte(strings.Join(argv, "\x00")+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
