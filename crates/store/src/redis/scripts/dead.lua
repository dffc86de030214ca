-- Gives those of the nodes that have been silent for too long, and those that have left something: they stand there with a time
-- before all times.
-- KEYS: nodes, the pulse of all. ARGV: how long a node may be silent.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pulse = redis.call('HMGET', KEYS[2], 'last', 'since')
local last, since = tonumber(pulse[1] or '0'), tonumber(pulse[2] or '0')
-- While nobody at all is heard it was the server that was away, or its clock was set: whoever asks has not shown itself either.
-- And once somebody is heard again, everybody has the time again that a node has to show itself.
if now - last > ARGV[1] / 2 or now - since <= tonumber(ARGV[1]) then
  return redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE')
end
return redis.call('ZRANGE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]), 'BYSCORE')
