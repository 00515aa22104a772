;; Grows several tables in turn: what counts is what they have together.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (core module $m
    (table $a 1 funcref)
    (table $b 1 funcref)
    (table $c 1 funcref)
    (func (export "handle") (param i32 i32)
      (loop $again
        (br_if $again (i32.and
          (i32.and
            (i32.ne (table.grow $a (ref.null func) (i32.const 1000)) (i32.const -1))
            (i32.ne (table.grow $b (ref.null func) (i32.const 1000)) (i32.const -1)))
          (i32.ne (table.grow $c (ref.null func) (i32.const 1000)) (i32.const -1)))))
      unreachable))
  (core instance $main (instantiate $m))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
