package layering

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// What a type has is all that can be done to it with its insides at hand:
//
//   - its methods, and those of the types of its package that it embeds;
//   - the functions of its package whose first parameter it is, also as an
//     alias, as a type parameter that can be nothing else, or as an interface
//     that no other type has the methods of; and such functions in variables.
//     A table of them is one;
//   - the functions of other packages whose first parameter it is, and that
//     reach into its fields;
//   - the fields that its package gives a function with no name;
//   - the methods of types of its package that are the same thing by another
//     name: defined from it, or structs with nothing but a pointer to it.
//
// A function called new… that returns something else makes that of it, and is
// not counted.

// typeName is a type of a package, which is its folder in the module.
type typeName struct{ dir, name string }

func (n typeName) String() string { return n.dir + "." + n.name }

// scope is where the names of an expression are looked up.
type scope struct {
	dir     string
	imports map[string]string   // name in the file: import path
	params  map[string]ast.Expr // type parameter: constraint
}

func (s scope) with(list *ast.FieldList) scope {
	if list != nil {
		s.params = map[string]ast.Expr{}
		for _, f := range list.List {
			for _, name := range f.Names {
				s.params[name.Name] = f.Type
			}
		}
	}
	return s
}

// declared is the declaration of a type. There may be one for each system.
type declared struct {
	scope
	spec *ast.TypeSpec
}

// set is a set of names.
type set map[string]bool

// table has sets of names by type.
type table map[typeName]set

func (t table) put(of typeName, name string) {
	if t[of] == nil {
		t[of] = set{}
	}
	t[of][name] = true
}

// counter counts what the types of a tree have.
type counter struct {
	types   map[typeName][]declared
	methods table                   // declared for the type, and fields that are given functions
	takers  table                   // functions that take the type first
	fields  table                   // of a struct
	parts   map[typeName][]typeName // types of its package that it embeds
	aliases map[typeName][]typeName // types that are the same thing by another name
	hooks   map[typeName][]typeName // field that is a function, with its package: the types that have it
	known   table                   // see methodsOf
}

// count returns for each type of files the names of what it has. What differs
// from system to system is taken together.
func count(files []source) table {
	c := &counter{types: map[typeName][]declared{}, methods: table{}, takers: table{}, fields: table{}, known: table{},
		parts: map[typeName][]typeName{}, aliases: map[typeName][]typeName{}, hooks: map[typeName][]typeName{}}
	for _, pass := range []func(scope, ast.Decl){c.declare, c.addMethod, c.addFunctions} {
		for _, s := range files {
			if s.isTest() {
				continue
			}
			in := scope{dir: path.Dir(s.path), imports: importNames(s.file)}
			for _, decl := range s.file.Decls {
				pass(in, decl)
			}
		}
	}
	all := table{}
	for name := range c.types {
		all[name] = set{}
		c.collect(name, "", all[name], map[typeName]bool{})
	}
	return all
}

// collect adds what a type has.
func (c *counter) collect(name typeName, prefix string, into set, seen map[typeName]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	for m := range c.methods[name] {
		into[prefix+m] = true
	}
	maps.Copy(into, c.takers[name])
	for _, part := range c.parts[name] {
		if c.isInterface(part) { // others have it too: functions take them all
			maps.Copy(into, c.methodsOf(part))
		} else {
			c.collect(part, prefix, into, seen)
		}
	}
	for _, alias := range c.aliases[name] {
		c.collect(alias, alias.name+".", into, seen)
	}
}

func (c *counter) declare(in scope, decl ast.Decl) {
	g, ok := decl.(*ast.GenDecl)
	if !ok || g.Tok != token.TYPE {
		return
	}
	for _, spec := range g.Specs {
		t := spec.(*ast.TypeSpec)
		name := typeName{in.dir, t.Name.Name}
		c.types[name] = append(c.types[name], declared{in.with(t.TypeParams), t})
	}
}

// addMethod adds a method, or what types are made of.
func (c *counter) addMethod(in scope, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			if of, ok := c.resolve(in, d.Recv.List[0].Type); ok {
				c.methods.put(of, d.Name.Name)
			}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok {
				c.relate(typeName{in.dir, t.Name.Name}, declared{in.with(t.TypeParams), t})
			}
		}
	}
}

// relate finds what a type is made of, and what it is another name of.
func (c *counter) relate(name typeName, d declared) {
	switch t := d.spec.Type.(type) {
	case *ast.StructType:
		for _, f := range t.Fields.List {
			c.addField(name, d, f, len(t.Fields.List) == 1)
		}
	case *ast.InterfaceType:
		for _, f := range t.Methods.List {
			for _, m := range f.Names {
				c.methods.put(name, m.Name)
			}
			if of, ok := c.resolve(d.scope, f.Type); ok && len(f.Names) == 0 {
				c.parts[name] = append(c.parts[name], of)
			}
		}
	default:
		if of, ok := c.resolve(d.scope, t); ok && d.spec.Assign == token.NoPos && of != name { // type A B, type A *B
			c.aliases[of] = append(c.aliases[of], name)
		}
	}
}

func (c *counter) addField(name typeName, d declared, f *ast.Field, only bool) {
	for _, field := range f.Names {
		c.fields.put(name, field.Name)
		if _, ok := f.Type.(*ast.FuncType); ok {
			hook := typeName{name.dir, field.Name}
			c.hooks[hook] = append(c.hooks[hook], name)
		}
	}
	of, ok := c.resolve(d.scope, f.Type)
	if !ok || of.dir != name.dir || of == name {
		return
	}
	if len(f.Names) == 0 {
		c.parts[name] = append(c.parts[name], of)
	}
	if _, pointer := f.Type.(*ast.StarExpr); pointer && only && len(f.Names) < 2 { // struct{ *B }, struct{ b *B }
		c.aliases[of] = append(c.aliases[of], name)
	}
}

// addFunctions adds a function, those that a variable has, and those that
// fields are given.
func (c *counter) addFunctions(in scope, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && !isConstructor(d) {
			c.take(in.with(d.Type.TypeParams), d.Type, d.Body, d.Name.Name)
		}
		if d.Body != nil {
			c.addHooks(in, d.Body)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				c.addVariable(in, v)
			}
		}
	}
}

func isConstructor(d *ast.FuncDecl) bool {
	if !strings.HasPrefix(strings.ToLower(d.Name.Name), "new") || d.Type.Results == nil {
		return false
	}
	switch t := d.Type.Results.List[0].Type.(type) {
	case *ast.StarExpr, *ast.SelectorExpr:
		return true
	case *ast.Ident:
		return t.Obj == nil && t.Name != "error" && t.Name != "bool" && t.Name != "int"
	}
	return false
}

// addVariable adds the functions with no name that a variable begins with.
func (c *counter) addVariable(in scope, v *ast.ValueSpec) {
	name, table := v.Names[0].Name, isTable(v)
	ast.Inspect(v, func(x ast.Node) bool {
		f, ok := x.(*ast.FuncLit)
		if ok {
			c.take(in, f.Type, f.Body, name)
			if !table {
				name += "'" // the next one
			}
		}
		return !ok
	})
	c.addHooks(in, v)
}

// isTable reports whether a variable is a list or map, of which something
// chooses one.
func isTable(v *ast.ValueSpec) bool {
	for _, x := range v.Values {
		lit, ok := x.(*ast.CompositeLit)
		if !ok {
			return false
		}
		switch lit.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
		default:
			return false
		}
	}
	return true
}

// take adds a function to the types that its first parameter can be.
func (c *counter) take(in scope, f *ast.FuncType, body *ast.BlockStmt, name string) {
	if len(f.Params.List) == 0 {
		return
	}
	first := f.Params.List[0]
	for _, of := range c.meant(in, first.Type) {
		if of.dir == in.dir || len(first.Names) > 0 && c.reachesInto(body, first.Names[0].Name, of) {
			c.takers.put(of, in.dir+"."+name)
		}
	}
}

// reachesInto reports whether a function uses fields of a parameter, which is
// of that type.
func (c *counter) reachesInto(body *ast.BlockStmt, param string, of typeName) (reaches bool) {
	if body == nil {
		return false
	}
	ast.Inspect(body, func(x ast.Node) bool {
		if s, ok := x.(*ast.SelectorExpr); ok && c.fields[of][s.Sel.Name] {
			id, _ := s.X.(*ast.Ident)
			reaches = reaches || id != nil && id.Name == param
		}
		return !reaches
	})
	return reaches
}

// addHooks counts the fields that are given a function with no name, which is
// called as a method is.
func (c *counter) addHooks(in scope, body ast.Node) {
	ast.Inspect(body, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.CompositeLit:
			of, ok := c.resolve(in, x.Type)
			for _, e := range x.Elts {
				if kv, _ := e.(*ast.KeyValueExpr); ok && kv != nil && isFunction(kv.Value) && of.dir == in.dir {
					if key, _ := kv.Key.(*ast.Ident); key != nil {
						c.methods.put(of, "field "+key.Name)
					}
				}
			}
		case *ast.AssignStmt:
			for i, l := range x.Lhs {
				field, _ := l.(*ast.SelectorExpr)
				if field == nil || len(x.Lhs) != len(x.Rhs) || !isFunction(x.Rhs[i]) {
					continue
				}
				for _, of := range c.hooks[typeName{in.dir, field.Sel.Name}] {
					c.methods.put(of, "field "+field.Sel.Name)
				}
			}
		}
		return true
	})
}

func isFunction(x ast.Expr) bool {
	_, ok := x.(*ast.FuncLit)
	return ok
}

// resolve returns the type of the module that an expression means, through
// pointers, aliases and type arguments.
func (c *counter) resolve(in scope, x ast.Expr) (name typeName, ok bool) {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return c.resolve(in, x.X)
	case *ast.StarExpr:
		return c.resolve(in, x.X)
	case *ast.IndexExpr:
		return c.resolve(in, x.X)
	case *ast.IndexListExpr:
		return c.resolve(in, x.X)
	case *ast.Ident:
		name = typeName{in.dir, x.Name}
	case *ast.SelectorExpr:
		id, _ := x.X.(*ast.Ident)
		if id == nil {
			return name, false
		}
		dir, ok := strings.CutPrefix(in.imports[id.Name], module+"/")
		if !ok {
			return name, false
		}
		name = typeName{dir, x.Sel.Name}
	default:
		return name, false
	}
	for _, d := range c.types[name] {
		if d.spec.Assign != token.NoPos {
			return c.resolve(d.scope, d.spec.Type)
		}
	}
	return name, len(c.types[name]) > 0
}

// meant returns the types that a parameter can be: for an interface and a type
// parameter those that it names, and the one that alone has the methods.
func (c *counter) meant(in scope, x ast.Expr) (all []typeName) {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return c.meant(in, x.X)
	case *ast.StarExpr:
		return c.meant(in, x.X)
	case *ast.UnaryExpr: // ~T
		return c.meant(in, x.X)
	case *ast.Ellipsis:
		return c.meant(in, x.Elt)
	case *ast.BinaryExpr: // A | B
		return append(c.meant(in, x.X), c.meant(in, x.Y)...)
	case *ast.InterfaceType:
		return c.implementers(in, x, false)
	case *ast.Ident:
		if constraint, ok := in.params[x.Name]; ok {
			in.params = nil
			return c.meant(in, constraint)
		}
	}
	name, ok := c.resolve(in, x)
	if !ok {
		return nil
	}
	for _, d := range c.types[name] {
		if t, ok := d.spec.Type.(*ast.InterfaceType); ok && name.dir == in.dir {
			all = append(all, c.implementers(d.scope, t, ast.IsExported(name.name))...)
		}
	}
	return append(all, name)
}

// implementers returns the types that an interface names, and the one that
// alone has its methods: in its package, and in all of them if it is exported.
func (c *counter) implementers(in scope, t *ast.InterfaceType, exported bool) (all []typeName) {
	need := set{}
	for _, f := range t.Methods.List {
		for _, m := range f.Names {
			need[m.Name] = true
		}
		if len(f.Names) > 0 {
			continue
		}
		if of, ok := c.resolve(in, f.Type); ok && c.isInterface(of) {
			maps.Copy(need, c.methodsOf(of))
		} else {
			all = append(all, c.meant(in, f.Type)...)
		}
	}
	var have []typeName
	for name := range c.types {
		if (exported || name.dir == in.dir) && !c.isInterface(name) && includes(c.methodsOf(name), need) {
			have = append(have, name)
		}
	}
	if len(need) > 0 && len(have) == 1 && have[0].dir == in.dir {
		all = append(all, have[0])
	}
	return all
}

func includes(have, need set) bool {
	for m := range need {
		if !have[m] {
			return false
		}
	}
	return true
}

func (c *counter) isInterface(name typeName) bool {
	return slices.ContainsFunc(c.types[name], func(d declared) bool {
		_, ok := d.spec.Type.(*ast.InterfaceType)
		return ok
	})
}

// methodsOf returns the names of a type's methods, promoted ones too.
func (c *counter) methodsOf(name typeName) set {
	if all, ok := c.known[name]; ok {
		return all
	}
	all := set{}
	c.known[name] = all
	maps.Copy(all, c.methods[name])
	for _, part := range c.parts[name] {
		maps.Copy(all, c.methodsOf(part))
	}
	return all
}
