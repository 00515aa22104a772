;; Has a child that calls back into the parent while the parent runs.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  ;; What the parent calls is known only when the child is there: a table stands in until then.
  (core module $late
    (table (export "late") 1 funcref)
    (type $call (func))
    (func (export "call") (call_indirect (type $call) (i32.const 0))))
  (core instance $late (instantiate $late))
  (core module $m
    (import "late" "call" (func $child))
    (func (export "back"))
    (func (export "handle") (param i32 i32)
      (call $child)
      unreachable))
  (core instance $main (instantiate $m (with "late" (instance $late))))
  (func $back (canon lift (core func $main "back")))
  (component $child
    (import "back" (func $back))
    (core func $back (canon lower (func $back)))
    (core module $m
      (import "" "back" (func $back))
      (func (export "go") (call $back)))
    (core instance $i (instantiate $m (with "" (instance (export "back" (func $back))))))
    (func (export "go") (canon lift (core func $i "go"))))
  (instance $child (instantiate $child (with "back" (func $back))))
  (core func $go (canon lower (func $child "go")))
  (core module $patch
    (import "late" "late" (table 1 funcref))
    (import "" "go" (func $go))
    (elem (i32.const 0) func $go))
  (core instance (instantiate $patch
    (with "late" (instance $late))
    (with "" (instance (export "go" (func $go))))))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
