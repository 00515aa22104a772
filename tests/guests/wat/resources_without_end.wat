;; Makes resources of a type of its own that it never drops: their table is the host's.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (type $thing (resource (rep i32)))
  (core func $new (canon resource.new $thing))
  (core module $m
    (import "" "new" (func $new (param i32) (result i32)))
    (func (export "handle") (param i32 i32)
      (loop $again
        (drop (call $new (i32.const 7)))
        (br $again))))
  (core instance $main (instantiate $m (with "" (instance (export "new" (func $new))))))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
