;; Grows several memories in turn: what counts is what they have together.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (core module $m
    (memory $a 1)
    (memory $b 1)
    (memory $c 1)
    (func (export "handle") (param i32 i32)
      (loop $again
        (br_if $again (i32.and
          (i32.and
            (i32.ne (memory.grow $a (i32.const 16)) (i32.const -1))
            (i32.ne (memory.grow $b (i32.const 16)) (i32.const -1)))
          (i32.ne (memory.grow $c (i32.const 16)) (i32.const -1)))))
      unreachable))
  (core instance $main (instantiate $m))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
