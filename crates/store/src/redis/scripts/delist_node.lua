-- Deletes the presence of a node in sessions, unless it was recorded for a later version. If no
-- presence is left, and the node leaves or has sent no heartbeat for too long, removes the node
-- from the list of nodes. If the node leaves and a presence is left, the node counts as dead from
-- now on.
-- KEYS: nodes, pulse, the list of the node's sessions.
-- ARGV: node, 1 if it leaves, how long a node may be without a heartbeat, then sessions and
-- versions.
-- Returns 1 if the node is not on the list any more.
for at = 4, #ARGV, 2 do
  local version = redis.call('ZSCORE', KEYS[3], ARGV[at])
  if version and tonumber(version) <= tonumber(ARGV[at + 1]) then redis.call('ZREM', KEYS[3], ARGV[at]) end
end
if redis.call('ZCARD', KEYS[3]) > 0 then
  if ARGV[2] == '1' then redis.call('ZADD', KEYS[1], -1, ARGV[1]) end
  return 0
end
local beat = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '-1')
if ARGV[2] ~= '1' and beat >= 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local pulse = redis.call('HMGET', KEYS[2], 'last', 'since')
  local last, since = tonumber(pulse[1] or '0'), tonumber(pulse[2] or '0')
  -- As in dead_nodes.lua.
  if now - last > ARGV[3] / 2 or now - math.max(beat, since) <= tonumber(ARGV[3]) then return 0 end
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
