package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// types are those of the manifests.
var types = map[string]func() any{
	"v1/ConfigMap":                       func() any { return &core.ConfigMap{} },
	"v1/Namespace":                       func() any { return &core.Namespace{} },
	"v1/Pod":                             func() any { return &core.Pod{} },
	"v1/Service":                         func() any { return &core.Service{} },
	"apps/v1/DaemonSet":                  func() any { return &apps.DaemonSet{} },
	"apps/v1/Deployment":                 func() any { return &apps.Deployment{} },
	"batch/v1/Job":                       func() any { return &batch.Job{} },
	"networking.k8s.io/v1/NetworkPolicy": func() any { return &networking.NetworkPolicy{} },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	"kubeflow.org/v2beta1/MPIJob":             func() any { return &mpi.MPIJob{} },
}

// decode returns the objects of a text, by kind and name. A field that a type
// does not have, or has twice, is a mistake.
func decode(t *testing.T, from string, text []byte) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for r := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		var head struct {
			meta.TypeMeta   `json:",inline"`
			meta.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		if head.Kind == "" {
			continue // comments alone
		}
		of := types[head.APIVersion+"/"+head.Kind]
		if of == nil {
			t.Fatalf("%s: this test does not know %s %s", from, head.APIVersion, head.Kind)
		}
		object := of()
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Errorf("%s: %s %s: %v", from, head.Kind, head.Name, err)
		}
		objects[head.Kind+" "+head.Name] = object
	}
}

// build is what kubectl kustomize prints, of files of this folder and of more.
func build(t *testing.T, more map[string]string, dir string) map[string]any {
	t.Helper()
	fs := filesys.MakeFsInMemory()
	for _, pattern := range []string{"node/*", "metrics/*"} {
		for _, name := range glob(t, pattern) {
			if err := fs.WriteFile(filepath.Join("/k", name), read(t, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range more {
		if err := fs.WriteFile(filepath.Join("/k", name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, filepath.Join("/k", dir))
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, dir, text)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %v, %v", pattern, list, err)
	}
	return list
}

// get returns an object, of the type that it has.
func get[T any](t *testing.T, objects map[string]any, name string) *T {
	t.Helper()
	o, ok := objects[name].(*T)
	if !ok {
		t.Fatalf("there is no %s: %T", name, objects[name])
	}
	return o
}

// podsOf returns the pods that an object makes.
func podsOf(object any) (list []core.PodTemplateSpec) {
	switch o := object.(type) {
	case *core.Pod:
		list = append(list, core.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	case *apps.DaemonSet:
		list = append(list, o.Spec.Template)
	case *apps.Deployment:
		list = append(list, o.Spec.Template)
	case *batch.Job:
		list = append(list, o.Spec.Template)
	case *mpi.MPIJob:
		for _, r := range o.Spec.MPIReplicaSpecs {
			list = append(list, r.Template)
		}
	}
	return list
}

func container(t *testing.T, spec *core.PodSpec, name string) *core.Container {
	t.Helper()
	for _, list := range [][]core.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	t.Fatalf("there is no container %s", name)
	return nil
}

func volume(t *testing.T, spec *core.PodSpec, name string) *core.Volume {
	t.Helper()
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	t.Fatalf("there is no volume %s", name)
	return nil
}

func flagsOf(t *testing.T, args []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || !strings.HasPrefix(name, "--") {
			t.Errorf("the argument %q is no flag with a value", a)
		}
		m[strings.TrimPrefix(name, "--")] = value
	}
	return m
}

// object reads one of the examples.
func object[T any](t *testing.T, file, name string) *T {
	t.Helper()
	return get[T](t, decode(t, file, read(t, file)), name)
}
