-- A node may hold something of a session from a version on.
-- KEYS: nodes, the list of the node's sessions. ARGV: node, session, version, 1 if the node is to be on the list, how long
-- to keep this.
redis.call('ZADD', KEYS[2], 'GT', ARGV[3], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if ARGV[4] == '1' then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[1], 'NX', time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return 1
